"""Samples -> words with times, in a child process."""
