"""Read and write run folders and checkpoints, and evaluate the models of trained runs."""

from minicaps.runs.building import load_model
from minicaps.runs.run import Run, open_run

__all__ = ["Run", "load_model", "open_run"]
