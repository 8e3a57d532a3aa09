"""Custom files of a user: images, and arrays in an .npz file, and the results from them."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from minicaps.data import load
from minicaps.data.images import write_picture
from minicaps.errors import DataError

SIZE = (25, 29)  # as large as the tiny network needs, seen whole, and not square


def write(path, numbers):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(numbers).save(path)


def noise(seed, *shape, high=256):
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.uint8)


def saved(name, picture):
    """Write an image (C, H, W) as a PNG; return its path."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    write_picture(name, picture)
    return name


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def zipped(root, *, around=""):
    """Write the files of a folder to an archive, inside the folder `around`."""
    path = root.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as file:
        for each in sorted(root.rglob("*")):
            file.write(each, f"{around}{each.relative_to(root)}")
    return path


def grey_arrays(n=12, classes=3, size=SIZE):
    return {"images": noise(0, n, *size), "labels": np.arange(n) % classes}


def crosses_and_rings(n, size=SIZE, channels=1):
    """Draw black crosses and rings of several sizes on white, and return them with their labels."""
    rows, columns = np.indices(size) - np.array(size)[:, None, None] / 2
    rng, images, labels = np.random.default_rng(1), np.ones((n, channels, *size), "f"), []
    for k in range(n):
        radius = rng.uniform(6, 11)
        distance = np.hypot(rows, columns)
        ring = abs(distance - radius) < 1.5
        cross = (np.minimum(abs(rows), abs(columns)) < 1.5) & (distance < radius)
        images[k, :, cross if k % 2 else ring] = 0
        labels.append(k % 2)
    return images, np.array(labels)


def refusal(path, **options):
    with pytest.raises(DataError) as caught:
        load(path, **options)
    return str(caught.value)


def all_of(data):
    """Return the bytes of every image by its name, from both parts."""
    parts = (data.train, data.test)
    return {n: (i, k) for p in parts for n, i, k in zip(p.names, p.images, p.labels, strict=True)}
