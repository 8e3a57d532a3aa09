"""Pictures of a run. Matplotlib is imported when a picture is drawn, never with minicaps."""

from minicaps.plotting.canvas import short
from minicaps.plotting.evaluation import confusion, worst
from minicaps.plotting.insight import couplings, kernels, prediction, sweeps
from minicaps.plotting.members import members
from minicaps.plotting.run import curves, reconstructions

__all__ = [
    "confusion",
    "couplings",
    "curves",
    "kernels",
    "members",
    "prediction",
    "reconstructions",
    "short",
    "sweeps",
    "worst",
]
