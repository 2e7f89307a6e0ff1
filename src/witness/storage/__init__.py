"""Files on the disk: whole or not at all, kept until the work is done, checked when they are read."""
