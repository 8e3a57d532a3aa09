"""The windows of convolutional capsules in ONNX, which may share children."""

import numpy as np


class Windows:
    """Graph side of a `minicaps.routing.couplings.Windows`.

    The children of all windows fill S = P·Q·K·K places of `types` children each.
    """

    def __init__(self, windows):
        (h, w), (p, q), k = windows.size, windows.grid, windows.kernel
        self.grid, self.children = (p * q, k * k * windows.types), windows.types
        positions = np.arange(h * w).reshape(1, h, w, 1)
        self.position = windows.gather(positions).data  # (P·Q, K·K)
        self.sharing, self.first = _sharing(self.position.ravel())

    def gather(self, graph, values, shape=()):
        """Add the children of every window: (B, H·W, T, …) -> (B, P·Q, K·K·T, …).

        shape: the axes after T.
        """
        held = graph.add("Gather", values, self.position, axis=1)  # (B, P·Q, K·K, T, …)
        return graph.add("Reshape", held, [0, *self.grid, *shape])

    def maximum(self, graph, values):
        """Add the maximum for each child over all windows that contain it, (B, P·Q, 1, K·K·T)."""
        return self._back(graph, graph.add("ReduceMax", self._shared(graph, values), [2]))

    def total(self, graph, values):
        """Add the sum for each child over all windows that contain it, (B, P·Q, 1, K·K·T)."""
        once = graph.add("Mul", self._shared(graph, values), self.first[..., None])
        return self._back(graph, graph.add("ReduceSum", once, [2]))

    def _shared(self, graph, values):
        """Add the values of the same child in all windows: (B, P·Q, 1, K·K·T) -> (B, S, M, T)."""
        values = graph.add("Reshape", values, [0, self.position.size, self.children])
        return graph.add("Gather", values, self.sharing, axis=1)

    def _back(self, graph, values):
        """Reshape (B, S, 1, T) to (B, P·Q, 1, K·K·T)."""
        return graph.add("Reshape", values, [0, self.grid[0], 1, self.grid[1]])


def _sharing(positions):
    """Return the places (S, M) that share a position with each place, and which of them count.

    positions: (S,). M is the largest number of places at a position. Where fewer share it, the
    place itself is repeated and does not count: zeros and ones (S, M).
    """
    there = [np.flatnonzero(positions == k) for k in range(positions.max() + 1)]
    most = max(map(len, there))
    places = np.repeat(np.arange(len(positions))[:, None], most, axis=1)
    counts = np.zeros(places.shape, np.float32)
    for place, position in enumerate(positions):
        some = there[position]
        places[place, : len(some)], counts[place, : len(some)] = some, 1
    return places, counts
