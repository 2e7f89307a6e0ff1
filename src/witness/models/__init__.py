"""Which model files there are, and how they get onto this disk."""
