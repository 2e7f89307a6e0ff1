"""Many recordings, unattended."""
