"""Command-line arguments for data sets and image sizes."""

import argparse
import os
import re

from minicaps import data
from minicaps.cli.command import number
from minicaps.data.augmentation import FLIPS

# Options of augmentation: the help text, and how `argparse` reads the value
AUGMENTATION: dict[str, tuple[str, dict]] = {
    "shift": ("shift images by up to N pixels", {"metavar": "N", "type": number(int, 0)}),
    "rotate": (
        "rotate by up to DEGREES, 0 to 180",
        {"metavar": "DEGREES", "type": number(float, 0, 180, ends="[]")},
    ),
    "zoom": (
        "zoom by a factor from 1-F to 1+F (F below 1)",
        {"metavar": "F", "type": number(float, 0, 1)},
    ),
    "flip": ("mirror at random", {"choices": FLIPS}),
    "brightness": (
        "multiply pixels by 1-AMOUNT to 1+AMOUNT; below 1",
        {"metavar": "AMOUNT", "type": number(float, 0, 1)},
    ),
}


def data_source(text):
    """Parse the name of a data set or the path to custom data.

    Paths are made absolute, so a run can be resumed from a different working directory.
    """
    if text in data.NAMES:
        return text
    if not text or not os.path.exists(text):
        raise argparse.ArgumentTypeError(
            f"must be an existing path or one of {', '.join(data.NAMES)}, got {text!r}"
        )
    return os.path.abspath(text)


def parse_size(text):
    """Parse an image size given as N or HxW, and return it as a list of integers [H, W].

    "auto" remains.
    """
    if text == "auto":
        return text
    sides = re.fullmatch(r"([1-9]\d{0,4})(?:[x×]([1-9]\d{0,4}))?", text, re.ASCII)
    if not sides:
        raise argparse.ArgumentTypeError(
            f"must be a side of 1 to 99999 pixels, such as 28, or height x width, such as 40x56,"
            f" or auto, got {text!r}"
        )
    return [int(sides[1]), int(sides[2] or sides[1])]
