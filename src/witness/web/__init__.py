"""The modules, styles and templates of the pages."""
