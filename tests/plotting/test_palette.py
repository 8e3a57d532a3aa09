"""Test that the colors are those of Okabe and Ito, which color-blind readers can tell apart."""

import re
from pathlib import Path

import lessons
from minicaps.plotting import canvas
from minicaps.plotting.members import MEMBERS

OKABE_ITO = {"e69f00", "56b4e9", "009e73", "f0e442", "0072b2", "d55e00", "cc79a7"}
NAMES = "BLUE ORANGE GREEN PINK AMBER SKY"  # in the order of the lessons' figures


def test_figures_and_lessons_use_the_palette_that_they_name():
    style = Path(lessons.__file__).with_name("machinery") / "lessons.mplstyle"
    cycle = re.findall("'([0-9a-f]{6})'", style.read_text())
    own = [getattr(canvas, name)[1:].lower() for name in NAMES.split()]
    assert own == cycle and set(own) <= OKABE_ITO
    assert {colour[1:].lower() for colour in MEMBERS} <= OKABE_ITO
