"""Strokes, a data set of computer-drawn digits that requires no download.

The skeleton of a digit consists of the points that a pen passes through. For each sample, the
points are displaced a little and transformed by a random *pose*, and the strokes are drawn with a
pen of random thickness:

    point in the image = scale · rotation · shear · skeleton point + translation

Each image is returned with its pose, so the quantities that the dimensions of a capsule should
represent are known.

The origin of the coordinates is the center of the image; the x-axis points to the right, and the
y-axis points down.
"""

from functools import cache
from itertools import chain

import numpy as np

SIZE = 28  # height and width of an image, in pixels
UNIT = 9.0  # pixels per skeleton unit: at scale 1 a digit is 18 pixels high
TRAIN_SIZE, TEST_SIZE = 10_000, 2_000  # the default data set
CLASS_NAMES = tuple("0123456789")

# The entries of a pose are drawn independently and uniformly from their ranges.
POSE_RANGES = {
    "rotation": (-25.0, 25.0),  # degrees, positive is clockwise
    "scale": (0.7, 1.05),
    "shear": (-0.3, 0.3),  # x moves by shear · y: positive leans to the left
    "translation_x": (-3.0, 3.0),  # pixels, positive is to the right
    "translation_y": (-3.0, 3.0),  # pixels, positive is down
    "thickness": (1.1, 3.0),  # pixels
}
POSE_NAMES = tuple(POSE_RANGES)
WOBBLE = 0.08  # standard deviation of a point's displacement in x and in y, in skeleton units

# A stroke is a smooth curve through its points; it is closed if it ends where it starts. A point
# given twice in a row is a corner. Equal points are the same point, even in different strokes: they
# are displaced together, so the strokes stay connected.
# fmt: off
SKELETONS: dict[int, list] = {
    0: [[(0, -1), (0.5, -0.55), (0.58, 0), (0.5, 0.55), (0, 1), (-0.5, 0.55), (-0.58, 0),
         (-0.5, -0.55), (0, -1)]],
    1: [[(-0.32, -0.5), (0.05, -1), (0.05, -1), (0.05, 1)]],
    2: [[(-0.52, -0.55), (-0.4, -0.87), (0, -1), (0.42, -0.82), (0.48, -0.4), (0.15, 0.15),
         (-0.55, 1), (-0.55, 1), (0.58, 1)]],
    3: [[(-0.5, -0.8), (0, -1), (0.46, -0.78), (0.44, -0.3), (0, -0.08), (0, -0.08),
         (0.48, 0.15), (0.52, 0.65), (0.05, 1), (-0.52, 0.78)]],
    4: [[(0.15, -1), (-0.6, 0.35), (-0.6, 0.35), (0.62, 0.35)], [(0.3, -0.3), (0.3, 1)]],
    5: [[(0.5, -1), (-0.4, -1), (-0.4, -1), (-0.48, -0.15), (-0.48, -0.15), (0.1, -0.3),
         (0.52, 0.05), (0.5, 0.6), (0.05, 1), (-0.52, 0.8)]],
    6: [[(0.4, -0.95), (-0.15, -0.6), (-0.5, 0.05), (-0.48, 0.65), (0, 1), (0.48, 0.7),
         (0.42, 0.2), (0, 0), (-0.5, 0.35)]],
    7: [[(-0.55, -1), (0.55, -1), (0.55, -1), (0.1, 0), (-0.15, 1)]],
    8: [[(0, -0.08), (0.42, -0.4), (0.36, -0.85), (0, -1), (-0.36, -0.85), (-0.42, -0.4),
         (0, -0.08), (0.5, 0.3), (0.46, 0.8), (0, 1), (-0.46, 0.8), (-0.5, 0.3), (0, -0.08)]],
    9: [[(0.46, -0.4), (0.05, -0.05), (-0.42, -0.25), (-0.42, -0.75), (0, -1), (0.42, -0.8),
         (0.46, -0.4), (0.38, 0.3), (0.2, 1)]],
}
# fmt: on
CATMULL_ROM = 0.5 * np.array([[0, 2, 0, 0], [-1, 0, 1, 0], [2, -5, 4, -1], [-1, 3, -3, 1]])
POINTS = max(len(set(chain(*skeleton))) for skeleton in SKELETONS.values())

_CHUNK = 1000  # samples that share a random generator: 100 of each digit
_PARTS = ("train", "test")


def strokes(n: int, *, seed: int = 0, part: str = "train"):
    """Draw n digits, and return their images, labels and poses.

    Images (n, 1, 28, 28) are float32 in [0, 1], labels (n,) are int64, and poses (n, 6) are
    float64, in the order of `POSE_NAMES`. `part` is "train" or "test", which are independent
    streams of one seed. Sample i depends on `seed`, `part` and i, but not on n. Each block of 1,000
    samples contains every digit 100 times.
    """
    if n < 1:
        raise ValueError(f"strokes draws at least 1 sample, got n={n}")
    if part not in _PARTS:
        raise ValueError(f"part must be one of {', '.join(_PARTS)}, got {part!r}")
    from tqdm import tqdm

    lowest, highest = np.array(list(POSE_RANGES.values())).T
    images = np.empty((n, 1, SIZE, SIZE), dtype=np.float32)
    labels = np.empty(n, dtype=np.int64)
    poses = np.empty((n, len(POSE_NAMES)))
    bar = {"desc": "Drawing", "delay": 1, "leave": False, "disable": None}  # None: on a terminal
    for start in tqdm(range(0, n, _CHUNK), unit=f" × {_CHUNK:,} images", **bar):
        key = (_PARTS.index(part), start // _CHUNK)
        random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
        # always draw a whole chunk, so that a sample does not depend on n
        of_labels = random.permutation(np.arange(_CHUNK) % len(SKELETONS))
        of_poses = random.uniform(lowest, highest, size=(_CHUNK, len(POSE_NAMES)))
        wobble = random.normal(0, WOBBLE, size=(_CHUNK, POINTS, 2))
        here = slice(start, min(start + _CHUNK, n))
        wanted = slice(0, here.stop - start)
        labels[here], poses[here] = of_labels[wanted], of_poses[wanted]
        images[here] = draw(labels[here], poses[here], wobble[wanted])
    return images, labels, poses


def draw(labels, poses, wobble=None) -> np.ndarray:
    """Draw images (n, 1, 28, 28) of digits with the given labels (n,) and poses (n, 6).

    `wobble` (n, POINTS, 2) displaces the skeleton points by (x, y), in skeleton units. None means
    no displacement. If a digit has fewer than POINTS points, only the first displacements of its
    row are used.
    """
    labels, poses = np.asarray(labels), np.asarray(poses, dtype=np.float64)
    images = np.empty((len(labels), 1, SIZE, SIZE), dtype=np.float32)
    for digit in np.unique(labels):
        which = np.flatnonzero(labels == digit)
        points, starts, ends = _curves(int(digit))
        if wobble is not None:
            points = points + wobble[which, : len(points)]
        placed = _place(points, poses[which])
        thickness = poses[which, POSE_NAMES.index("thickness")]
        images[which, 0] = _ink(starts @ placed, ends @ placed, thickness)
    return images


def _place(points, poses):
    """Apply poses (n, 6) to skeleton points, and return pixel coordinates (n, k, 2).

    The skeleton points have shape (k, 2) or (n, k, 2). Pixel coordinates (x, y) are measured from
    the center of the top-left pixel.
    """
    rotation, scale, shear, across, down, _ = poses.T[:, :, None]
    angle = np.radians(rotation)
    x = points[..., 0] + shear * points[..., 1]
    y = points[..., 1]
    x, y = np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y
    middle = (SIZE - 1) / 2
    return np.stack([UNIT * scale * x + across + middle, UNIT * scale * y + down + middle], axis=-1)


@cache
def _curves(digit):
    """Approximate the skeleton of a digit by line segments.

    Returns the points (k, 2) and two matrices (segments, k) that map these points to the start and
    end points of the segments. The rows of each matrix sum to 1, so the matrices can also be
    applied to points that have been displaced and transformed by a pose.

    The curve is a Catmull-Rom spline: it passes through the points, and its tangent at each point
    is parallel to the line between the two neighbors (E. Catmull, R. Rom, 1974). Between points b
    and c with neighbors a and d, it is [1, t, t², t³] · CATMULL_ROM · [a, b, c, d] for t from 0 to
    1. The missing neighbor of an end point, or of a corner, which is listed twice, is the point
    itself.
    """
    points = list(dict.fromkeys(chain(*SKELETONS[digit])))
    starts, ends = [], []
    for stroke in SKELETONS[digit]:
        closed = stroke[0] == stroke[-1]
        before, after = (stroke[-2], stroke[1]) if closed else (stroke[0], stroke[-1])
        through = [points.index(point) for point in (before, *stroke, after)]
        for four in zip(through, through[1:], through[2:], through[3:], strict=False):
            if four[1] == four[2]:  # the second half of a corner
                continue
            straight = four[0] == four[1] and four[2] == four[3]
            t = np.linspace(0, 1, 2 if straight else 6)
            weights = np.stack([t**0, t, t**2, t**3], axis=-1) @ CATMULL_ROM
            piece = weights @ np.eye(len(points))[list(four)]
            starts.extend(piece[:-1])
            ends.extend(piece[1:])
    return np.array(points, dtype=np.float64), np.array(starts), np.array(ends)


def _ink(starts, ends, thickness):
    """Draw line segments from `starts` to `ends` (n, segments, 2) as images (n, 28, 28).

    thickness: (n,), thickness of the pen. The brightness falls linearly from 1 to 0 over a width of
        one pixel, centered on the edge of the pen.
    """
    starts = starts.astype(np.float32)
    along = ends.astype(np.float32) - starts
    per_length = along / np.maximum((along**2).sum(axis=-1, keepdims=True), 1e-12)
    pixels = np.arange(SIZE, dtype=np.float32)
    nearest = np.full((len(starts), SIZE, SIZE), np.inf, dtype=np.float32)
    for segment in range(starts.shape[1]):  # one at a time: the arrays fit in the CPU's cache
        x = (pixels - starts[:, segment, 0, None])[:, None, :]
        y = (pixels - starts[:, segment, 1, None])[:, :, None]
        dx, dy = along[:, segment].T[:, :, None, None]
        ux, uy = per_length[:, segment].T[:, :, None, None]
        t = np.clip(x * ux + y * uy, 0, 1)  # position of the closest point between start and end
        nearest = np.minimum(nearest, (x - t * dx) ** 2 + (y - t * dy) ** 2)
    reach = (thickness / 2 + 0.5).astype(np.float32)[:, None, None]
    return np.clip(reach - np.sqrt(nearest), 0, 1)
