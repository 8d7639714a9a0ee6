"""The Unitree Go1, which speaks UDP."""
