"""How right, how fast."""
