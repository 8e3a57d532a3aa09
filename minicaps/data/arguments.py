"""What commands take on the command line to name data and sizes of images."""

import argparse
import os
import re

from minicaps import data


def data_source(text):
    """The name of a data set, or the path of the user's own; absolute, so that a run can go on from
    another folder."""
    if text in data.NAMES:
        return text
    if not text or not os.path.exists(text):
        raise argparse.ArgumentTypeError(
            f"must be a path that exists, or choose from {', '.join(data.NAMES)}, not {text!r}"
        )
    return os.path.abspath(text)


def parse_size(text):
    """Height and width of pictures, from N or HxW: two whole numbers, as [H, W]."""
    sides = re.fullmatch(r"([1-9]\d{0,4})(?:[x×]([1-9]\d{0,4}))?", text, re.ASCII)
    if not sides:
        raise argparse.ArgumentTypeError(
            f"must be a side of 1 to 99999 pixels, such as 28, or height x width, such as 40x56,"
            f" not {text!r}"
        )
    return [int(sides[1]), int(sides[2] or sides[1])]
