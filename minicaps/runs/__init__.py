"""Run folders and checkpoints: write them, load a run with its model and data, and evaluate it."""

from minicaps.runs.building import load_model
from minicaps.runs.run import Run, open_run

__all__ = ["Run", "load_model", "open_run"]
