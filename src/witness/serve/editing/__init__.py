"""Transcripts shown, changed and exported in a child process."""
