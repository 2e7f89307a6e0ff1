"""Recordings as jobs: which there are, who works on them, how far they are; for batch and desk alike."""
