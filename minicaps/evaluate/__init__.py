"""`python -m minicaps.evaluate`: evaluate a trained network on a data set or on arrays."""

from minicaps.evaluate.in_memory import evaluate

__all__ = ["evaluate"]
