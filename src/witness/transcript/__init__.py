"""Transcripts: made of the models' results, corrected by people, and stored on disk."""
