"""Train a network with `python -m minicaps.train` or, on arrays in memory, with `fit`."""

from minicaps.train.fitting import fit

__all__ = ["fit"]
