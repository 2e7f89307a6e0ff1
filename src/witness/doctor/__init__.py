"""What this machine has of all that Witness can use."""
