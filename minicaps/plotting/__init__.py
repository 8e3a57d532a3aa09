"""Figures of a run. Matplotlib is imported when a figure is drawn, never with minicaps."""

from minicaps.data.lettering import legible, short
from minicaps.plotting.confusion import confusion, worst
from minicaps.plotting.coupling_maps import couplings
from minicaps.plotting.curves import curves, reconstructions
from minicaps.plotting.layer import layer
from minicaps.plotting.members import members
from minicaps.plotting.mosaics import kernels, sweeps
from minicaps.plotting.prediction import prediction

__all__ = [
    "confusion",
    "couplings",
    "curves",
    "kernels",
    "layer",
    "legible",
    "members",
    "prediction",
    "reconstructions",
    "short",
    "sweeps",
    "worst",
]
