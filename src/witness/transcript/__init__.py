"""What the models found -> who said what, and a person's corrections to it."""
