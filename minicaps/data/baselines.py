"""Two baseline classifiers on raw pixels, which indicate how difficult a data set is."""

import numpy as np

from minicaps.data.dataset import Split


def nearest_neighbour(train: Split, test: Split) -> float:
    """Compute the test accuracy of the 1-nearest-neighbor classifier.

    Each test image is assigned the label of the closest training image in Euclidean distance.
    """
    known, asked = _rows(train), _rows(test)
    # ‖a − k‖² = ‖a‖² − 2 a·k + ‖k‖², and ‖a‖² is the same for every k
    half_norms = 0.5 * (known * known).sum(axis=1)
    hits = 0
    for block in range(0, len(asked), 500):  # limits the memory for distances
        nearest = (half_norms - asked[block : block + 500] @ known.T).argmin(axis=1)
        hits += np.count_nonzero(train.labels[nearest] == test.labels[block : block + 500])
    return hits / len(test)


def linear(train: Split, test: Split, *, weight_decay=1e-3, steps=100) -> float:
    """Train softmax regression on all training images, and return its test accuracy.

    The objective, mean cross-entropy + weight_decay/2 ‖W‖², is minimized by Nesterov's accelerated
    gradient method with step size 1/L, where L is an upper bound on the curvature. The Hessian of
    softmax cross-entropy with respect to the logits is at most 1/2 (Böhning, 1992). Therefore, the
    Hessian of the whole objective is at most half the largest eigenvalue of XᵀX/n, plus the weight
    decay.
    """
    mean = _rows(train).mean(axis=0)
    x = _with_ones(_rows(train) - mean)  # centered pixels, and ones for the bias
    n, columns = x.shape
    classes = int(max(train.labels.max(), test.labels.max())) + 1
    targets = np.eye(classes, dtype=x.dtype)[train.labels]
    decay = np.full((columns, 1), weight_decay, dtype=x.dtype)
    decay[-1] = 0  # no weight decay for the bias
    step = 1 / (0.5 * np.linalg.eigvalsh(x.T @ x / n)[-1] + weight_decay)

    weights = ahead = np.zeros((columns, classes), dtype=x.dtype)
    for k in range(steps):
        gradient = x.T @ (_softmax(x @ ahead) - targets) / n + decay * ahead
        previous, weights = weights, ahead - step * gradient
        ahead = weights + k / (k + 3) * (weights - previous)
    predicted = (_with_ones(_rows(test) - mean) @ weights).argmax(axis=1)
    return np.count_nonzero(predicted == test.labels) / len(test)


def _rows(split):
    return split.images.reshape(len(split), -1)


def _with_ones(x):
    return np.concatenate([x, np.ones((len(x), 1), dtype=x.dtype)], axis=1)


def _softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)
