"""The desk: a local server where people listen, correct, search and export."""
