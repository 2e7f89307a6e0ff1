"""The routes of the desk, by page."""
