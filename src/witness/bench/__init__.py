"""Scores and benchmarks of accuracy and speed, for `witness score` and `witness bench`."""
