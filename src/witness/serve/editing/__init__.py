"""Corrections to a transcript, made in a child process."""
