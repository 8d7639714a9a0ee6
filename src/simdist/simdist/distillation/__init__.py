"""The offline half: an expert, mixed-quality data, and the world model learned from it."""
