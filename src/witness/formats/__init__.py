"""Transcript <-> files for people and programs."""
