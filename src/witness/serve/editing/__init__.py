"""Transcripts shown and changed in a child process."""
