"""Baseline classifiers on raw pixels, which indicate how difficult a data set is."""

import time

import numpy as np

from minicaps.data.dataset import Split, draw_by_class, generator, mean_recall
from minicaps.data.images import Target, fitted
from minicaps.errors import Interrupted

IMAGES, SIDE, VALUES = 5000, 32, 1024  # limits of the linear classifier
DECAYS = (3, 0.3, 0.03, 0.003, 3e-4, 3e-5)
TOLERANCE = 0.003  # largest change of a weight at convergence, relative to the largest weight
STEPS = 300  # at most


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


def majority(labels: np.ndarray, test: Split) -> tuple[int, float]:
    """Return the most frequent label, and the test accuracy of always predicting it."""
    most = int(np.bincount(labels).argmax())
    return most, float((test.labels == most).mean())


def line(found: dict) -> str:
    """Describe baselines {"majority": {"class", "accuracy"}, "linear": the result of `linear`}.

    The linear classifier may be missing.
    """
    most = found["majority"]
    text = f"Baselines: always {most['class']!r} {most['accuracy']:.2%}"
    if linear := found.get("linear"):
        accuracy, balanced = linear["accuracy"], linear["balanced_accuracy"]
        ended = "" if linear["complete"] else ", stopped early"
        text += f", linear classifier {accuracy:.2%} (balanced {balanced:.2%}{ended})"
    return text


def linear(train: Split, test: Split, *, seed=0, seconds=10.0, stop: object = False) -> dict:
    """Train softmax regression on reduced images, and evaluate it on all test images.

    At most `IMAGES` training images are used, reduced to at most `SIDE` pixels per side and
    `VALUES` values. A quarter of them is held out to choose between standardized and raw pixels,
    and to choose the weight decay; the classifier is then trained on all of them. The result
    depends only on the images and the seed, unless the time runs out.

    Parameters
    ----------
    train, test : splits with labels (n,)
    seed : seed that draws the images to use and to hold out
    seconds : time limit; afterwards, the best classifier so far is evaluated
    stop : Interrupted is raised as soon as it becomes true

    Returns
    -------
    dict
        "accuracy" and "balanced_accuracy", "images" and their "size" (C, H, W), "standardized",
        "weight_decay", "seconds", and "complete", which is false if the time ran out.
    """
    clock = _Clock(seconds, stop)
    if len(train) > IMAGES:
        train = train.take(draw_by_class(train.labels, IMAGES, generator(seed, 6)))
    reduced = _reduction(train, test)
    images = np.concatenate([reduced(block).images for block in train.blocks()])
    train = Split(images, train.labels)
    classes = int(max(train.labels.max(), test.labels.max())) + 1
    targets = np.eye(classes, dtype=np.float32)[train.labels]
    held_out = draw_by_class(train.labels, max(1, len(train) // 4), generator(seed, 7))
    tried, complete = [], True
    for standardized in (True, False):
        transform = _components(_rows(train), standardized)
        found = _best_decay(transform(_rows(train)), targets, held_out, clock)
        tried.append((*found, standardized, transform))
        if clock.share() > 0.4:  # the next pixels may take as long, and so may all images
            complete = not standardized
            break
    _, decay, weights, standardized, transform = min(tried, key=lambda each: each[0])
    if not clock.over():
        weights = _fit(transform(_rows(train)), targets, decay, clock, weights)
    rows = (_rows(reduced(block)) for block in test.blocks())
    right = np.concatenate([(transform(x) @ weights).argmax(axis=1) for x in rows]) == test.labels
    recalled, present = (
        np.bincount(k, minlength=classes) for k in (test.labels[right], test.labels)
    )
    return {
        "accuracy": float(right.mean()),
        "balanced_accuracy": mean_recall(recalled, present),
        "images": len(train),
        "size": list(train.shape),
        "standardized": standardized,
        "weight_decay": decay,
        "seconds": round(clock.spent(), 3),
        "complete": complete and not clock.over(),
    }


class _Clock:
    """Time since the beginning, compared with a limit in seconds."""

    def __init__(self, seconds, stop):
        self.start, self.seconds, self.stop = time.perf_counter(), seconds, stop

    def spent(self):
        return time.perf_counter() - self.start

    def share(self):
        """Return the fraction of the time that has passed."""
        return self.spent() / self.seconds

    def over(self):
        """Return whether the time has run out, and raise Interrupted if the user asks to stop."""
        if self.stop:
            raise Interrupted
        return self.share() >= 1


# ---- pixels


def _reduction(train, test):
    """Return a function that reduces the images of a split.

    It keeps one channel if all images are gray.
    """
    blocks = (block.images for split in (train, test) for block in split.blocks())
    gray = all((images == images[:, :1]).all() for images in blocks)
    channels, height, width = train.shape
    channels = 1 if gray else channels
    scale = min(1, SIDE / max(height, width), (VALUES / (channels * height * width)) ** 0.5)
    target = Target((max(1, int(height * scale)), max(1, int(width * scale))))

    def reduced(split):
        images = split.images[:, :1] if gray else split.images
        return fitted(Split(images, split.labels), target)

    return reduced


def _rows(split):
    return split.images.reshape(len(split), -1)


def _components(rows, standardized):
    """Return a function that maps rows (n, p) to principal components, and 1 for the bias.

    The components of the given rows are uncorrelated. Weight decay does not depend on the rotation.
    """
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(scale > 1e-3, scale, 1) if standardized else np.ones_like(scale)
    x = (rows - mean) / scale
    fewer_rows = len(x) < x.shape[1]
    squares, axes = np.linalg.eigh(x @ x.T if fewer_rows else x.T @ x)
    kept = squares > 1e-6 * max(squares[-1], 1e-6)
    axes = axes[:, kept]
    if fewer_rows:  # from eigenvectors of xxᵀ to those of xᵀx
        axes = x.T @ axes / np.sqrt(squares[kept])

    def transform(rows):
        return _with_ones((rows - mean) / scale @ axes)

    return transform


def _with_ones(x):
    return np.concatenate([x, np.ones((len(x), 1), dtype=x.dtype)], axis=1)


# ---- softmax regression


def _best_decay(x, targets, held_out, clock):
    """Return the lowest loss of the held-out rows, with its weight decay and weights.

    The decay is lowered, starting from the last weights, until the loss on the held-out rows rises.
    """
    best, weights = None, None
    for decay in DECAYS:
        weights = _fit(x[~held_out], targets[~held_out], decay, clock, weights)
        chances = (_softmax(x[held_out] @ weights) * targets[held_out]).sum(axis=1)
        loss = -np.log(np.maximum(chances, 1e-30)).mean()
        if best is not None and (loss >= best[0] or clock.over()):
            break
        best = loss, decay, weights
    return best


def _fit(x, targets, decay, clock, weights=None):
    """Minimize the mean cross-entropy + decay/2 ‖W‖², and return the weights W (columns, classes).

    The Hessian of softmax cross-entropy with respect to the logits is at most 1/2 (Böhning, 1992),
    so the Hessian of the objective is at most XᵀX/2n + decay. Principal components make this bound
    diagonal, up to the rows that are held out, and each row of the gradient is divided by its
    bound. The momentum is Nesterov's; it restarts when it points uphill.
    """
    n, columns = x.shape
    if weights is None:
        weights = np.zeros((columns, targets.shape[1]), dtype=x.dtype)
    decays = np.full((columns, 1), decay, dtype=x.dtype)
    decays[-1] = 0  # no weight decay for the bias
    bound = 0.5 * np.square(x).sum(axis=0)[:, None] / n + decays
    ahead, k = weights, 0
    for _ in range(STEPS):
        step = -(x.T @ (_softmax(x @ ahead) - targets) / n + decays * ahead) / bound
        previous, weights = weights, ahead + step
        change = weights - previous
        k = 0 if (step * change).sum() < 0 else k + 1
        ahead = weights + k / (k + 3) * change
        if np.abs(change).max() <= TOLERANCE * np.abs(weights).max() or clock.over():
            break
    return weights


def _softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)
