"""Readers for custom data: folders of images, tables of labels, `.npz` files and IDX files."""

from minicaps.data.own import from_memory
from minicaps.data.own.found import FRAMES, Found, Reading
from minicaps.data.own.reading import load, read

__all__ = ["FRAMES", "Found", "Reading", "from_memory", "load", "read"]
