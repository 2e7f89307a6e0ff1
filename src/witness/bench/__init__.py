"""How accurate, how fast: what `witness score` and `witness bench` measure."""
