"""Draw an example of custom data: folders of color images of shapes, 40×56 pixels.

`python tests/shapes.py FOLDER [COUNT]` draws COUNT images (default 50) into FOLDER/circle,
FOLDER/square and FOLDER/triangle.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

NAMES = ("circle", "square", "triangle")
HEIGHT, WIDTH = 40, 56
FINE = 4  # factor of supersampling, for smooth edges


def draw(name, random):
    """Draw a shape of random color, position and size on a random darker background."""
    ground, colour = random.integers(0, 90, 3), random.integers(130, 256, 3)
    radius = random.uniform(12, 16)
    x, y = random.uniform(radius + 1, WIDTH - radius - 1), random.uniform(radius + 1, 39 - radius)
    picture = Image.new("RGB", (FINE * WIDTH, FINE * HEIGHT), tuple(map(int, ground)))
    corners = {"circle": 60, "square": 4, "triangle": 3}[name]
    start = {"square": np.pi / 4, "triangle": -np.pi / 2}.get(name, 0)
    angles = start + 2 * np.pi * np.arange(corners) / corners
    points = FINE * (np.stack([x + radius * np.cos(angles), y + radius * np.sin(angles)], axis=1))
    ImageDraw.Draw(picture).polygon(
        [tuple(p) for p in points.tolist()], fill=tuple(map(int, colour))
    )
    return picture.resize((WIDTH, HEIGHT), Image.Resampling.BOX)


def write(folder, count=50, seed=0):
    """Write `count` images, cycling through the three shapes, and return the folder."""
    random = np.random.default_rng(seed)
    for k in range(count):
        path = Path(folder, NAMES[k % 3], f"{k:02}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        draw(NAMES[k % 3], random).save(path)
    return Path(folder)


if __name__ == "__main__":
    write(sys.argv[1], *map(int, sys.argv[2:]))
