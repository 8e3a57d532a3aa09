"""`python -m minicaps.train`: train a network and write a run folder; `fit` does so in memory."""

from minicaps.train.fitting import fit

__all__ = ["fit"]
