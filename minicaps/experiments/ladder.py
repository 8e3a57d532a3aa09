"""ladder: from a CapsNet to a CNN, one step at a time.

Each rung drops one thing that distinguishes a CapsNet from a CNN, and keeps the changes of all
rungs above it: routing (one iteration has equal couplings), the squash of both layers, the margin
loss (the cross-entropy takes lengths divided by their sum as probabilities) and the decoder.
`dense-cnn`, which has linear layers in place of capsules and nearly as many parameters as the rung
above, stands at the foot. A side rung, `shared matrices`, has one iteration, too, but all positions
share their matrices, which leaves far fewer parameters.

Gu and Tresp (2020) raise the accuracy on affNIST from 79% to 93.21% with shared matrices and no
routing, which is the side rung here. Gu et al. (2021) report that routing and the matrices can harm
robustness, and that other parts help. The rungs are therefore tested on MNIST and on digits that
are transformed as in `affine`, whose training images and test images are used here, too, and on
digits that are shifted farther than in training, as many in affNIST are. No learning rate suits all
rungs: without a squash, 0.003 leaves the margin loss stuck. Each rung is therefore trained with two
rates, and the network that is better on held-out digits after the last epoch is tested. (`affine`
itself compares networks at equal accuracy.)
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from minicaps.data import affine as transformed
from minicaps.experiments.affine import HELD_OUT, TRAINING, framed
from minicaps.experiments.equal import best_rate, in_the_end
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import accuracy, all_seeds, cost_cells, line
from minicaps.plotting.canvas import BLUE, INK, ORANGE, new_figure

TITLE = "from a CapsNet to a CNN, one step at a time"
SEEDS = 3
DATA = "mnist"
RECONSTRUCTION = 0.0005  # the paper's weight
RATES = (0.003, 0.001)
STEPS = {
    "CapsNet": {"model": "capsnet", "iterations": 3, "reconstruction": RECONSTRUCTION},
    "one iteration": {"iterations": 1},
    "no squash": {"squash": "none"},
    "cross-entropy": {"loss": "cross-entropy"},
    "no decoder": {"reconstruction": 0.0},
}
SIDE = {"shared matrices": ("one iteration", {"shared": True})}
NAMES = ("CapsNet", "one iteration", *SIDE, *list(STEPS)[2:], "dense-cnn")
FAR = 10  # pixels by which digits are shifted in `far`: at most, their 20×20 pixels stay inside
SETS = {"mnist": "MNIST", "affine": "Rotated, sheared and scaled digits"}
SOURCE = {"CapsNet": "79", "shared matrices": "93.21"}  # %: affNIST, in Gu and Tresp 2020

KEY = {
    "CapsNet": "the small CapsNet with three iterations of routing and a decoder",
    "one iteration": "equal couplings; here and below, with all changes of the rows above",
    "shared matrices": "one iteration, and all positions share the matrices (not in rows below)",
    "no squash": "neither of the primary nor of the class capsules",
    "cross-entropy": "in place of the margin loss",
    "no decoder": "trained without reconstruction",
    "dense-cnn": "linear layers with nearly as many parameters as the row above",
    "rate": "learning rate chosen on held-out digits, by seed, on MNIST / on affine",
    "MNIST": "accuracy on the test digits, %",
    "moved": f"accuracy, %, on digits shifted by up to {transformed.MOST} pixels, as in training",
    "far": f"accuracy, %, on digits shifted by up to {FAR} pixels",
    "affine": "accuracy, %, on digits that are also rotated, sheared and scaled",
    "source": "affNIST, in Gu and Tresp 2020 (abstract); there without routing, other settings",
}
TESTED = "MNIST test digits, the same for every seed; transformed anew for each seed if affine"
COMPARED = tuple(
    (f"{data}, {first}", f"{data}, {second}")
    for data in SETS
    for first, second in (
        *pairwise([*STEPS, "dense-cnn"]),
        *((above, name) for name, (above, _) in SIDE.items()),
    )
)


def parts(quick):
    rungs, kept = {}, {}
    for name, change in STEPS.items():
        kept = kept | change
        rungs[name] = kept
    rungs |= {name: rungs[above] | change for name, (above, change) in SIDE.items()}
    rungs["dense-cnn"] = {"model": "dense-cnn"}
    common = {"data": DATA, "schedule": "cosine", "learning_rate": list(RATES)}
    common |= {"validation": 500, "epochs": 1} if quick else {"validation": HELD_OUT, "epochs": 6}
    if quick:
        common["limit"] = 1000  # training images, so that 28 networks take two minutes
    of = {"mnist": {"shift": 2}, "affine": {"shift": transformed.MOST}}
    if not quick:
        of["affine"]["limit"] = TRAINING + HELD_OUT
    return {f"{data}, {name}": common | of[data] | rungs[name] for data in SETS for name in NAMES}


def measure(lab, part, settings, seed):
    data, name = part.split(", ")
    digits = lab.data(DATA, seed, settings.get("limit"))
    learned = digits
    if data == "affine":
        learned = replace(digits, train=framed(digits.train), test=framed(digits.test))
        held_out = digits.cut_validation(settings["validation"], seed)[1]
        held_out = transformed.changed(held_out, (), seed=seed)

    def train(rate):
        own = settings | {"seed": seed, "learning_rate": rate}
        return lab.train(f"{data}-{name.replace(' ', '-')}-{rate}", learned, own)

    def score(folder):
        if data != "affine":
            return in_the_end(folder)
        return lab.accuracy(lab.model(folder / "last.npz"), held_out)

    rate, folder = best_rate(train, settings["learning_rate"], score)
    model, figures = lab.model(folder / "last.npz"), {"rate": rate}
    if data == "affine":
        for name, most in (("moved", transformed.MOST), ("far", FAR)):
            moved = transformed.changed(digits.test, (), most=most, seed=seed)
            figures[name] = lab.accuracy(model, moved)
        right = lab.right(model, transformed.changed(digits.test, seed=seed))
    else:
        right = lab.right(model, digits.test)
    figures["accuracy"] = float(right.mean())
    return figures | tested(right) | cost(read_summary(folder))


def table(results):
    rows = [
        ["", "MNIST", "moved", "far", "affine", "source", "rate", "parameters", "images learned"]
    ]
    for name in NAMES:
        plain, harder = (results.get(f"{data}, {name}") for data in SETS)
        cells = [accuracy(plain) if plain else "–"]
        cells += [accuracy(harder, k) if harder else "–" for k in ("moved", "far", "accuracy")]
        if there := plain or harder:
            rates = [", ".join(f"{f['rate']:g}" for f in found or []) for found in (plain, harder)]
            cells += [SOURCE.get(name, "–"), " / ".join(rates)]
            rows.append([name, *cells, *cost_cells(there)])
    return rows


def headline(results):
    rows = []
    for part, seeds in results.items():
        data, name = part.split(", ")
        source = f"{SOURCE[name]} % (affNIST)" if data == "affine" and name in SOURCE else "–"
        what = f"{name}: accuracy on " + ("transformed digits" if data == "affine" else "MNIST")
        rows.append(line(what, source, f"{accuracy(seeds)} %", seeds))
    return rows


def draw(results, path, lab):
    """Plot the test error of each rung on both data sets."""
    figure = new_figure(10, 4)
    panels, names = figure.subplots(1, len(SETS), sharey=True), NAMES
    for axes, (data, title) in zip(panels, SETS.items(), strict=True):
        for row, name in enumerate(names):
            wrong = [100 * (1 - f["accuracy"]) for f in results.get(f"{data}, {name}", [])]
            colour, marker = (ORANGE, "s") if name == "dense-cnn" else (BLUE, "o")
            axes.plot(wrong, [row] * len(wrong), marker, color=colour, alpha=0.5, markersize=6)
            if wrong:
                axes.plot(np.mean(wrong), row, "|", color=INK, markersize=18, markeredgewidth=2)
        axes.set(title=title, ylim=(len(names) - 0.5, -0.5))
        axes.grid(alpha=0.3)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_xlabel(f"test error, %{all_seeds(results, 'dots')}")
    panels[1].set_xlabel("test error, %")
    lab.save(figure, path)
