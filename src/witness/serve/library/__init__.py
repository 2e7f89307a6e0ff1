"""The transcripts below the folder, and an index of their words."""
