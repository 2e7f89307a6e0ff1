"""A path -> samples at 16 kHz, in a file that may be larger than memory; and the sound that a page plays."""
