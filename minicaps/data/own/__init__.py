"""Custom data: folders of images, tables of labels, `.npz` and IDX files."""

from minicaps.data.own.reading import load, read

__all__ = ["load", "read"]
