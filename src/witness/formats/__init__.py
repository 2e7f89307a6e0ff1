"""A transcript <-> the files that people and programs read."""
