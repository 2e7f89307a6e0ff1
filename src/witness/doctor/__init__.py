"""The parts of this machine that Witness can use, checked."""
