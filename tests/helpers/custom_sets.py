"""Small data sets like those that people bring, and a fair linear baseline to compare with.

    python tests/helpers/custom_sets.py FOLDER [NAME ...]             write the sets
    python tests/helpers/custom_sets.py FOLDER [NAME ...] --baseline  and measure a linear model
    python tests/helpers/custom_sets.py FOLDER [NAME ...] --train 5   and train with five seeds

Training uses `python -m minicaps.train --data SET` without further options, and a seed draws the
split into training and test images, too.

letters: 26 letters in Matplotlib's fonts (some of which lack them) and two sizes, black on white,
36×36. twenty, hundred: 20 and 100 characters in these fonts. shapes: outlines of four shapes in
black on a transparent ground, 40×40. few: 20 drawn digits per class. imbalanced: 300, 40 and 12
drawn digits of three classes. gray: scikit-learn's 8×8 digits, floats from 0 to 16.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from minicaps.data import load
from minicaps.data.strokes import strokes

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LEFT_OUT = ("STIXSiz", "LastResort")  # fonts of brackets, and of boxes
FINE = 4  # shapes are drawn larger by this factor, for smooth edges


def letters(folder, rng):
    typeset(folder, dict(zip(LETTERS, LETTERS, strict=True)), sizes=(20, 26))


def twenty(folder, rng):
    typeset(folder, {f"{ord(c):03}": c for c in "0123456789abcdefghij"})


def hundred(folder, rng):
    typeset(folder, {f"{k:03}": chr(k) for k in (*range(33, 127), *map(ord, "ÄÖÜäöü"))})


def typeset(folder, characters, sizes=(22,)):
    """Write each character, given as {class name: character}, in all fonts and sizes."""
    fonts = sorted(Path(get_data_path(), "fonts/ttf").glob("*.ttf"))
    for font in (path for path in fonts if not path.name.startswith(LEFT_OUT)):
        for points in sizes:
            face = ImageFont.truetype(str(font), points)
            for name, character in characters.items():
                image = Image.new("L", (36, 36), 255)
                ImageDraw.Draw(image).text((18, 18), character, fill=0, font=face, anchor="mm")
                write(image, folder / name / f"{font.stem}-{points}.png")


def shapes(folder, rng, count=120):
    for name, corners in (("circle", 60), ("square", 4), ("star", 5), ("triangle", 3)):
        for k in range(count):
            radius, (x, y) = rng.uniform(9, 15), rng.uniform(16, 24, 2)
            angles = rng.uniform(0, 2 * np.pi) + 2 * np.pi * np.arange(corners) / corners
            if name == "star":
                angles = angles[[0, 2, 4, 1, 3]]
            points = FINE * np.stack([x + radius * np.cos(angles), y + radius * np.sin(angles)], 1)
            image = Image.new("RGBA", (40 * FINE, 40 * FINE), (0, 0, 0, 0))
            outline = [tuple(p) for p in [*points.tolist(), points[0].tolist()]]
            ImageDraw.Draw(image).line(outline, fill=(0, 0, 0, 255), width=2 * FINE)
            write(image.resize((40, 40), Image.Resampling.BOX), folder / name / f"{k}.png")


def few(folder, rng):
    digits(folder, rng, dict.fromkeys(range(10), 20))


def imbalanced(folder, rng):
    digits(folder, rng, {3: 300, 5: 40, 8: 12})


def digits(folder, rng, counts):
    """Write the first drawn digits of each class."""
    images, labels, _ = strokes(4000, seed=int(rng.integers(2**31)), part="train")
    for digit, count in counts.items():
        for k, image in enumerate(images[labels == digit][:count]):
            write(
                Image.fromarray(np.rint(image[0] * 255).astype("u1")), folder / f"{digit}/{k}.png"
            )


def gray(folder, rng):
    found = load_digits()
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "digits.npz", images=found.images, labels=found.target)


SETS = {"letters": letters, "shapes": shapes, "few": few, "imbalanced": imbalanced, "gray": gray}
SETS |= {"twenty": twenty, "hundred": hundred}


def write(image, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def make(name, folder, seed=0):
    """Write the set `name` into `folder`; return the path to give to `--data`."""
    path = Path(folder, name)
    SETS[name](path, np.random.default_rng(seed))
    return path / "digits.npz" if name == "gray" else path


def baseline(data):
    """Test accuracy and balanced accuracy of logistic regression on the pixels of a data set.

    The better of raw and standardized pixels, each with the best C, by cross-validation.
    """
    x, y = data.train.images.reshape(len(data.train), -1), data.train.labels
    strengths = {"logisticregression__C": np.logspace(-3, 1, 5)}
    found = []
    for steps in ((), (StandardScaler(),)):
        model = make_pipeline(*steps, LogisticRegression(max_iter=100))
        search = GridSearchCV(model, strengths, cv=min(3, np.bincount(y).min()))
        found.append(search.fit(x, y))
    best = max(found, key=lambda search: search.best_score_)
    labels = data.test.labels
    correct = best.predict(data.test.images.reshape(len(data.test), -1)) == labels
    return correct.mean(), np.mean([correct[labels == k].mean() for k in np.unique(labels)])


def trained(path, seed):
    """Train by the command without options; return what `baseline` does, and the seconds."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "minicaps.train", "--data", str(path), "--quiet"]
        began = time.perf_counter()
        subprocess.run([*command, "--seed", str(seed), "--out", f"{folder}/run"], check=True)
        found = json.loads(Path(folder, "run/summary.json").read_text())
    return found["test_accuracy"], found["test_balanced_accuracy"], time.perf_counter() - began


def measure(path, seeds):
    """Print the mean accuracies of both classifiers over these seeds."""
    rows = []
    for seed in range(seeds):
        rows.append(trained(path, seed))
        print("  seed {}: {:.1%}, balanced {:.1%}, {:.0f} s".format(seed, *rows[-1]), flush=True)
    splits = [load(str(path), seed=seed, size="auto") for seed in range(seeds)]
    linear, linear_balanced = np.mean([baseline(data) for data in splits], axis=0)
    accuracy, balanced, seconds = np.mean(rows, axis=0)
    images = f"{len(splits[0].train):,} + {len(splits[0].test):,}"
    found = f"{accuracy:.1%} ({balanced:.1%}) | {linear:.1%} ({linear_balanced:.1%})"
    print(f"| {path.stem} | {images} | {found} | {seconds:.0f} |", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SETS))
    parser.add_argument("--baseline", action="store_true", help="measure logistic regression")
    text = "compare the default command with it, on SEEDS splits"
    parser.add_argument("--train", type=int, metavar="SEEDS", help=text)
    options = parser.parse_args(arguments)
    for name in options.names or SETS:
        path = make(name, options.folder)
        print(f"{name}: {path}", flush=True)
        if options.baseline:
            data = load(str(path), size="auto")
            accuracy, balanced = baseline(data)
            print(f"  {len(data.train):,} images for training, {len(data.test):,} for testing")
            print(f"  logistic regression: {accuracy:.1%}, balanced {balanced:.1%}", flush=True)
        if options.train:
            measure(path, options.train)


if __name__ == "__main__":
    main()
