"""Walk by planning over a learned latent model, and get better while walking."""

__version__ = "0.1.0"
