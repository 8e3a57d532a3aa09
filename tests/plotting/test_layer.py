"""Test the diagram of a capsule layer: what is highlighted is filled, and nothing overlaps."""

import itertools

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from minicaps.plotting import layer
from minicaps.plotting.canvas import BLUE
from minicaps.plotting.layer import STAGES


def drawn(*arguments, **options):
    figure = Figure(figsize=(6.4, 2.5), layout="constrained")
    FigureCanvasAgg(figure)
    layer(axes := figure.add_subplot(), *arguments, **options)
    figure.canvas.draw()
    return axes


@pytest.mark.parametrize("routing", ["agreement", "em"])
def test_the_highlighted_stages_are_filled(routing):
    axes = drawn(routing, ["children", "votes"])
    boxes, arrows = axes.patches[:5], axes.patches[5:]
    assert [box.get_facecolor()[3] for box in boxes] == [1, 1, 0, 0, 0]
    assert [to_hex(arrow.get_edgecolor()) == BLUE.lower() for arrow in arrows] == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("routing", ["agreement", "em"])
@pytest.mark.parametrize("highlight", [(), STAGES])
def test_no_two_texts_overlap_and_none_is_cut(routing, highlight):
    axes = drawn(routing, highlight)
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
    assert len(boxes) == 5 + 5 + 3 + 1
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    whole = axes.figure.bbox
    assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 for box in boxes)


def test_unknown_stages_and_routings_are_named():
    with pytest.raises(ValueError, match=r"unknown stages \['vote'\]: choose from children"):
        drawn("agreement", ["vote"])
    with pytest.raises(ValueError, match="unknown routing 'EM': choose from agreement, em"):
        drawn("EM")
