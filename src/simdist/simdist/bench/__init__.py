"""Measuring what this machine can do: ``simdist bench``."""
