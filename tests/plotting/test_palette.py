"""Test that the colors are those of Okabe and Ito, which color-blind readers can tell apart."""

import re
from pathlib import Path

import lessons
from minicaps.plotting import canvas
from minicaps.plotting.members import MEMBERS

OKABE_ITO = {"e69f00", "56b4e9", "009e73", "f0e442", "0072b2", "d55e00", "cc79a7"}


def test_figures_and_lessons_use_the_palette_that_they_name():
    style = Path(lessons.__file__).with_name("machinery") / "lessons.mplstyle"
    cycle = re.findall("'([0-9a-f]{6})'", style.read_text())
    used = {colour[1:].lower() for colour in (canvas.BLUE, canvas.ORANGE, *MEMBERS)}
    assert len(cycle) == 6 and used | set(cycle) <= OKABE_ITO
