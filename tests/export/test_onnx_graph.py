"""The ops of ONNX graphs compute what the ops of minicaps compute, at the edges, too."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_outputs import outputs  # noqa: E402

from minicaps import ops  # noqa: E402
from minicaps.export.onnx_graph import Graph  # noqa: E402
from minicaps.export.onnx_ops import couple, direction, inverse, squash  # noqa: E402
from minicaps.export.onnx_windows import Windows  # noqa: E402
from minicaps.ops.capsule import SQUASHES  # noqa: E402
from minicaps.routing import couplings  # noqa: E402

S = np.array([[0, 0], [3, 4], [1e-6, 0], [-300, 400], [1e-30, 1e-30]], np.float32)


def computed(function, x, **options):
    """Return what a function adds to a graph, for an array x whose first axis is the batch."""
    graph = Graph()
    graph.add("Identity", function(graph, "x", **options), output="y")
    shapes = ("B", *x.shape[1:]), tuple("BCDE"[: x.ndim])
    return outputs(graph.model({"x": shapes[0]}, {"y": shapes[1]}), x=x)


@pytest.mark.parametrize("kind", [*SQUASHES, "none"])
def test_squash(kind):
    expected = ops.squash(S, kind=kind).numpy()
    np.testing.assert_allclose(computed(squash, S, axis=1, kind=kind), expected, 1e-6, 1e-7)


def test_the_squash_of_the_paper_has_the_values_of_the_paper():
    found = computed(squash, S[:2], axis=1)
    np.testing.assert_allclose(found, [[0, 0], [15 / 26, 20 / 26]], rtol=1e-6)


def test_direction_neither_overflows_nor_underflows():
    s = np.concatenate([S, 1e30 * S])
    expected = ops.direction(s).numpy()
    np.testing.assert_allclose(computed(direction, s, axis=1), expected, rtol=1e-6)
    assert abs(expected[[4, 6, 8]]).max(axis=1).min() > 0.7


@pytest.mark.parametrize("orphans", [False, True])
def test_couple_of_large_logits(orphans):
    b = np.array([[[0, 500], [1, -500], [-200, 200]]], np.float32)  # (B, J, I)
    expected = couplings.couple(b, axis=1, orphans=orphans).numpy()
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(computed(couple, b, axis=1, orphans=orphans), expected, atol=1e-6)


@pytest.mark.parametrize("kernel, stride", [(3, 1), (3, 2), (2, 2), (2, 3), (4, 4)])
@pytest.mark.parametrize("scale", [3, 300])  # e^300 overflows
def test_couple_over_windows_that_share_children(kernel, stride, scale):
    windows = couplings.Windows((5, 7), kernel, stride, 2)
    p, q = windows.grid
    b = np.random.default_rng(0).normal(size=(2, p * q, 3, kernel * kernel * 2)) * scale
    b = b.astype(np.float32)  # (B, P·Q, J, I)
    rows = b.reshape(-1, *b.shape[2:]).transpose(0, 2, 1)
    expected = couplings.couple(rows, axis=2, windows=windows).numpy()
    found = computed(couple, b, axis=-2, windows=Windows(windows))
    np.testing.assert_allclose(
        found.reshape(-1, *b.shape[2:]).transpose(0, 2, 1), expected, 1e-5, 1e-6
    )


def test_windows_gather_their_children():
    windows = couplings.Windows((5, 4), 3, 1, 2)
    grid = np.random.default_rng(0).random((3, 5 * 4, 2, 6), np.float32)

    def gather(graph, x):
        return Windows(windows).gather(graph, x, (6,))

    expected = windows.gather(grid.reshape(3, 5, 4, 2, 6)).numpy()
    np.testing.assert_array_equal(computed(gather, grid).reshape(expected.shape), expected)


def test_an_empty_cluster_has_no_weight():
    found = computed(inverse, np.array([0, 1e-30, 1e-10, 4], np.float32))
    np.testing.assert_allclose(found, [0, 0, 1e10, 0.25], rtol=1e-6)
