"""The ops on capsules in ONNX, from which layers and routings are composed."""

import numpy as np

from minicaps.clustering.steps import LEAST

TINY = float(np.finfo(np.float32).tiny)


def squash(graph, s, *, axis, kind="paper"):
    """Add v = ℓ(n) s/n with n = |s|, as in `minicaps.ops.squash`; the zero vector stays zero."""
    if kind == "none":
        return s
    n = graph.add("ReduceL2", s, [axis])
    return graph.add("Mul", s, RATIOS[kind](graph, n))


def _paper(graph, n, a=1.0):
    """Add ℓ(n)/n = n/(a + n²)."""
    return graph.add("Div", n, graph.add("Add", graph.add("Mul", n, n), a))


def _tanh(graph, n):
    return _ratio(graph, graph.add("Tanh", n), n)


def _exp(graph, n):
    """Add ℓ(n)/n for ℓ(n) = 1 − e^−n = 2t/(1 + t) with t = tanh(n/2), accurate near 0."""
    t = graph.add("Tanh", graph.add("Mul", n, 0.5))
    return _ratio(graph, graph.add("Div", graph.add("Mul", t, 2.0), graph.add("Add", t, 1.0)), n)


def _rational(graph, n):
    return graph.add("Reciprocal", graph.add("Add", n, 1.0))


def _ratio(graph, new, n):
    """Add ℓ(n)/n, which is 0 at n = 0 instead of the limit 1, because ℓ(n) s/n is 0 either way."""
    return graph.add("Div", new, graph.add("Max", n, TINY))


# kind -> function that adds ℓ(n)/n for the lengths n
RATIOS = {"paper": _paper, "half": lambda graph, n: _paper(graph, n, a=0.5)}
RATIOS |= {"tanh": _tanh, "exp": _exp, "rational": _rational}


def direction(graph, v, *, axis):
    """Add v/|v|; the zero vector stays zero.

    v is first divided by its largest component, so that squares neither overflow nor underflow.
    """
    largest = graph.add("ReduceMax", graph.add("Abs", v), [axis])
    v = graph.add("Div", v, graph.add("Max", largest, TINY))
    return graph.add("Div", v, graph.add("Max", graph.add("ReduceL2", v, [axis]), TINY))


def couple(graph, logits, *, axis, orphans=False, windows=None):
    """Add c_ij = e^b_ij / Σ_k e^b_ik, as in `minicaps.routing.couplings.couple`.

    windows: a `minicaps.export.onnx_windows.Windows`; `axis` must then be −2, that of the parents.
    """
    if windows is None and not orphans:
        return graph.add("Softmax", logits, axis=axis)
    top = graph.add("ReduceMax", logits, [axis])
    top = top if windows is None else windows.maximum(graph, top)
    top = graph.add("Max", top, 0.0) if orphans else top
    c = graph.add("Exp", graph.add("Sub", logits, top))
    total = graph.add("ReduceSum", c, [axis])
    total = total if windows is None else windows.total(graph, total)
    if orphans:
        total = graph.add("Add", total, graph.add("Exp", graph.add("Neg", top)))
    return graph.add("Div", c, total)


def inverse(graph, total):
    """Add 1/Σ_i w_i, or 0 for an empty cluster, as in `minicaps.clustering.steps.inverse`."""
    return graph.add("Div", alive(graph, total), graph.add("Max", total, LEAST))


def alive(graph, total):
    """Add 1 where the total weight of a cluster exceeds `LEAST`, and 0 elsewhere."""
    return graph.add("Cast", graph.add("Greater", total, LEAST), to=1)  # 1 stands for float32
