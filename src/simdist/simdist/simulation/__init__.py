"""MuJoCo worlds: scenes from YAML, one robot at 500 Hz, or hundreds at once for training."""
