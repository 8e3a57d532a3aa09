"""ladder: from a CapsNet to a CNN, one step at a time.

Each rung drops one thing that distinguishes a CapsNet from a CNN, and keeps the changes of all
rungs above it: routing (one iteration has equal couplings), the squash of both layers, the capsules
themselves (linear layers stand in their place), the margin loss, and the decoder, which leaves
`dense-cnn` with its default options. A side rung, `shared matrices`, has one iteration, too, but
all positions share their matrices, which leaves far fewer parameters.

The components are those that Gu, Tresp and Hu (2021) list, who report that routing and the matrices
can harm robustness, and that the others help. Gu and Tresp (2020) raise the accuracy on affNIST
from 79%, the figure of Sabour et al. (2017), to 93.21% with shared matrices and no routing, as in
the side rung; how they share the matrices may differ. The rungs are therefore tested on MNIST, on
digits that are transformed as in `affine`, whose training and test images are used here, too, and
on digits that are shifted farther than in training, as many in affNIST are.

What a rung changes may depend on the rungs above it, and the step to linear layers changes several
things at once: the primary convolution and the hidden layer have a ReLU, the linear layers have
biases, and the sigmoids of learned outputs replace lengths. The cross-entropy comes after this step
because it needs the softmax of such outputs: in a trial with shares of lengths without a squash,
accuracy on shifted digits fell from 98.2 to 93.4%, since a share is near 1 only if all other
lengths are near 0. It is larger than the margin loss, so the decoder weighs less beside it.

No learning rate suits all rungs. Without a squash, lengths are near 1.2 at first (0.2 with it), and
the margin loss cuts them at once; in a trial, 74% of the training digits were then correct after
210 steps, and 86% with a rate that rises slowly. It therefore rises over the first 150 steps for
every rung, and the rate to which it rises is the better of two on held-out digits after the last
epoch, with seed 0. All networks are tested after their last epoch. (`affine` itself compares
networks at equal accuracy.)
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from minicaps.data import affine as transformed
from minicaps.experiments.affine import HELD_OUT, TRAINING, framed
from minicaps.experiments.equal import DECIDES, best_rate, history, in_the_end
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import accuracy, all_seeds, cost_cells, distinct, line
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
    "linear layers": {"model": "dense-cnn", "loss": "margin"},
    "cross-entropy": {"loss": "cross-entropy"},
    "no decoder": {"reconstruction": 0.0},
}
OF_CAPSULES = ("iterations", "squash")  # options that a network without capsules lacks
SIDE = {"shared matrices": ("one iteration", {"shared": True})}
NAMES = ("CapsNet", "one iteration", *SIDE, *list(STEPS)[2:])
FAR = 10  # pixels by which digits are shifted at most in `far`; a few lose some ink
SETS = ("affine", "mnist")
DRAWN = {"mnist": "MNIST", "affine": "rotated, sheared, scaled", "far": "shifted farther"}
SOURCE = {"CapsNet": "79", "shared matrices": "93.21"}  # % on affNIST

KEY = {
    "CapsNet": "the small CapsNet with three iterations of routing and a decoder",
    "one iteration": "equal couplings; here and below, with all changes of the rows above",
    "shared matrices": "one iteration, and all positions share the matrices (not in rows below)",
    "no squash": "neither of the primary nor of the class capsules",
    "linear layers": "in place of capsules, with nearly as many parameters: `dense-cnn`",
    "cross-entropy": "of the softmax of the outputs, in place of the margin loss of their sigmoids",
    "no decoder": "trained without reconstruction, so `dense-cnn` with its default options",
    "rate": "learning rate chosen on held-out digits, on MNIST / on affine",
    "parameters": "number of trainable parameters, on MNIST / on affine",
    "images learned": "shown in training, on MNIST / on affine, not counting the rejected rate",
    "MNIST": "accuracy on the test digits, %",
    "moved": f"accuracy, %, on digits shifted by up to {transformed.MOST} pixels, as in training",
    "far": f"accuracy, %, on digits shifted by more than {transformed.MOST} pixels, up to {FAR}",
    "affine": "accuracy, %, on digits shifted as in `moved`, and rotated, sheared and scaled",
    "source": "affNIST: 79 in Sabour et al. 2017, 93.21 in Gu and Tresp 2020 (abstract)",
}
TESTED = "MNIST test digits, the same for every seed; transformed anew for each seed if affine"
COMPARED = tuple(
    (f"{data}, {first}", f"{data}, {second}")
    for data in SETS
    for first, second in (
        *pairwise(STEPS),
        *((above, name) for name, (above, _) in SIDE.items()),
        ("CapsNet", "shared matrices"),
        ("CapsNet", "linear layers"),
        ("CapsNet", "no decoder"),
    )
)


def parts(quick):
    rungs, kept = {}, {}
    for name, change in STEPS.items():
        kept = kept | change
        if kept["model"] == "dense-cnn":
            kept = {key: value for key, value in kept.items() if key not in OF_CAPSULES}
        rungs[name] = kept
    rungs |= {name: rungs[above] | change for name, (above, change) in SIDE.items()}
    common = {"data": DATA, "schedule": "cosine", "learning_rate": list(RATES)}
    if quick:  # so few images that 28 networks take two minutes
        common |= {"validation": 500, "epochs": 1, "limit": 1000}
    else:
        common |= {"validation": HELD_OUT, "epochs": 6, "warm_up": 150}
    of = {"mnist": {"shift": 2}, "affine": {"shift": transformed.MOST}}
    if not quick:
        of["affine"]["limit"] = TRAINING + HELD_OUT
    return {f"{data}, {name}": common | of[data] | rungs[name] for data in SETS for name in NAMES}


def measure(lab, part, settings, seed):
    data, name = part.split(", ")
    hard, limit = data == "affine", settings.get("limit")

    def train(rate, seed=DECIDES):
        digits, own = lab.data(DATA, seed, limit), settings | {"seed": seed, "learning_rate": rate}
        if hard:
            digits = replace(digits, train=framed(digits.train), test=framed(digits.test))
        return lab.train(f"{data}-{name.replace(' ', '-')}-{rate}", digits, own)

    def on_moved(folder):
        digits = lab.data(DATA, DECIDES, limit)
        held_out = digits.cut_validation(settings["validation"], DECIDES)[1]
        moved = transformed.changed(held_out, (), seed=DECIDES)
        return lab.accuracy(lab.model(folder / "last.npz"), moved)

    score, rates = on_moved if hard else in_the_end, settings["learning_rate"]
    rate, scores = best_rate(train, rates, score, lab.decided(part))
    folder = train(rate, seed)
    model, tests = lab.model(folder / "last.npz"), shown(data, lab.data(DATA, seed).test, seed)
    right = {kind: lab.right(model, split) for kind, split in tests.items()}
    return {
        **{kind: float(one.mean()) for kind, one in right.items()},
        "accuracy": float(right[data].mean()),
        "rate": rate,
        "searched": scores,
        "history": history(folder),
        **tested(right),
        **cost(read_summary(folder)),
    }


def shown(data, test, seed):
    """Return the test sets {kind: split} of a data set, the most important last."""
    if data == "mnist":
        return {"mnist": test}
    return {
        "moved": transformed.changed(test, (), seed=seed),
        "far": transformed.changed(test, (), least=transformed.MOST + 1, most=FAR, seed=seed),
        "affine": transformed.changed(test, seed=seed),
    }


def table(results):
    rows = [
        ["", "MNIST", "moved", "far", "affine", "source", "rate", "parameters", "images learned"]
    ]
    for name in NAMES:
        plain, harder = (results.get(f"{data}, {name}") for data in ("mnist", "affine"))
        cells = [accuracy(plain) if plain else "–"]
        cells += [accuracy(harder, k) if harder else "–" for k in ("moved", "far", "accuracy")]
        if there := [found for found in (plain, harder) if found]:
            rate = distinct(f"{found[0]['rate']:g}" for found in there)
            costs = [cost_cells(found) for found in there]
            cells += [SOURCE.get(name, "–"), rate, distinct(size for size, _ in costs)]
            rows.append([name, *cells, distinct(images for _, images in costs)])
    return rows


def headline(results):
    rows = []
    for part, seeds in results.items():
        (data, name), source = part.split(", "), "–"
        if data == "mnist":
            what, ours = f"{name}: accuracy on MNIST", accuracy(seeds)
        else:
            what = f"{name}: accuracy on digits shifted as in training / farther / transformed, too"
            ours = " / ".join(accuracy(seeds, kind, 1) for kind in ("moved", "far", "affine"))
            source = f"– / – / {SOURCE[name]} % (affNIST)" if name in SOURCE else source
        rows.append(line(what, source, f"{ours} %", seeds))
    return rows


def draw(results, path, lab):
    """Plot the test error of each rung on three kinds of digits."""
    figure = new_figure(11, 3.8)
    panels = figure.subplots(1, len(DRAWN), sharey=True)
    for axes, (kind, title) in zip(panels, DRAWN.items(), strict=True):
        data = "mnist" if kind == "mnist" else "affine"
        for row, name in enumerate(NAMES):
            wrong = [100 * (1 - f[kind]) for f in results.get(f"{data}, {name}", [])]
            capsules = row < NAMES.index("linear layers")
            colour, marker = (BLUE, "o") if capsules else (ORANGE, "s")
            axes.plot(wrong, [row] * len(wrong), marker, color=colour, alpha=0.5, markersize=6)
            if wrong:
                axes.plot(np.mean(wrong), row, "|", color=INK, markersize=18, markeredgewidth=2)
        axes.set(title=title, xlabel="test error, %", ylim=(len(NAMES) - 0.5, -0.5))
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    panels[0].set_yticks(range(len(NAMES)), NAMES)
    panels[0].set_xlabel(f"test error, %{all_seeds(results, 'dots')}")
    lab.save(figure, path)
