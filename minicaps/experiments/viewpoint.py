"""viewpoint: networks trained on a third of all rotations are tested on the rest.

In Hinton, Sabour and Frosst 2018, section 5.1, matrix capsules with EM routing and a CNN train on
toys (smallNORB) seen from a third of the azimuths. Both networks are stopped at equal accuracy on
these azimuths and are then tested on the remaining azimuths. Here, all networks are trained on
`strokes` rotated by −25° to −8⅓° and tested on rotations of up to 25°. EM routing uses two
iterations instead of the paper's three, because it learns slowly at first with three. The CNN has
four times as many parameters as the matrix capsules (in the paper, thirteen times as many). The
CapsNet from 2017 is included for comparison. The three networks also differ in their convolutions,
and only the CNN takes the mean over all positions; the CapsNet's own counterpart without capsules,
`dense-cnn`, is missing. A difference is therefore not due to the capsules alone. Each network is
tested after the epoch at which its validation accuracy was closest to the best accuracy of the
weakest network, and after its own best epoch. To find the epochs of equal accuracy, all networks of
a seed are trained when the first part is measured.
"""

from dataclasses import replace

import numpy as np

from minicaps.cli.sharing import all_of
from minicaps.data import strokes as drawn
from minicaps.data.strokes import POSE_NAMES, POSE_RANGES
from minicaps.experiments import equal
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import all_seeds, cost_cells, line, percent
from minicaps.plotting.canvas import BLUE, GREEN, INK, ORANGE, new_figure

TITLE = "trained on a third of all rotations, tested on the rest"
SEEDS = 3
EDGES = np.linspace(*POSE_RANGES["rotation"], 7)  # of the rotation ranges; the first two are known
KNOWN = EDGES[2]  # degrees; smaller rotations are known
STYLES = {"matrix capsules": (GREEN, "D"), "CapsNet": (BLUE, "o"), "CNN": (ORANGE, "^")}
SOURCE = {"matrix capsules": "3.7 / 13.5 %", "CNN": "3.7 / 20.0 %"}  # known / novel azimuths

KEY = {
    "matrix capsules": "with EM routing, two iterations",
    "CapsNet": "the CapsNet of 2017, with routing by agreement, three iterations",
    "CNN": "with pooling, without capsules",
    "equal": "after the epoch at which all networks are about equally good on validation digits",
    "best": "after a network's own best epoch on validation digits",
    "known": "digits rotated as in training, by −25° to −8⅓°",
    "novel": "digits rotated by −8⅓° to 25°",
    "source": "Hinton et al. 2018, at equal accuracy: toys seen from known / novel azimuths",
}
TESTED = "digits, drawn anew for each seed, a third of them known; paired test: equal, novel"
COMPARED = (("matrix capsules", "CNN"), ("CapsNet", "CNN"))


def parts(quick):
    common = {"data": "strokes", "validation": 200 if quick else 500, "batch_size": 32}
    epochs = (2, 2, 2) if quick else (12, 6, 12)
    em = {"model": "matrix-capsnet", "iterations": 2, "batch_norm": True}
    em |= {"learning_rate": 0.005, "decay": 0.7}
    networks = {
        "matrix capsules": em,
        "CapsNet": {"model": "capsnet", "reconstruction": 0.0},
        "CNN": {"model": "pooling-cnn"},
    }
    return {
        name: common | own | {"epochs": count}
        for (name, own), count in zip(networks.items(), epochs, strict=True)
    }


def measure(lab, part, settings, seed):
    strokes = lab.data(settings["data"], seed)
    familiar = replace(strokes, train=known(strokes.train), test=known(strokes.test))

    def trained(name):
        options = parts(lab.quick)[name] | {"seed": seed}
        return lab.train(name.replace(" ", "-"), familiar, options, keep_epochs=True)

    folders = all_of(trained, parts(lab.quick))
    curves = {
        name: equal.history(folder)["validation_accuracy"] for name, folder in folders.items()
    }
    summary = read_summary(folders[part])
    epochs = {"equal": equal.epochs(curves)[part], "best": summary["best_epoch"]}

    right = {
        name: lab.right(lab.model(folders[part] / f"epoch-{epoch}.npz"), strokes.test)
        for name, epoch in epochs.items()
    }
    angles = rotations(strokes.test)
    return {
        "curve": curves[part],
        "epochs": epochs,
        **{name: errors(right[name], angles) for name in epochs},
        **tested(right["equal"][angles >= KNOWN]),
        **cost(summary),
    }


def rotations(split):
    """Return the rotation of each image in degrees, as an array (n,)."""
    return split.poses[:, POSE_NAMES.index("rotation")]


def known(split):
    """Select the images whose rotations are in the range used for training."""
    return split.take(np.flatnonzero(rotations(split) < KNOWN))


def errors(right, angles):
    """Compute error rates on known rotations, on novel rotations, and in each range of `EDGES`."""
    wrong, place = 1.0 - right, np.searchsorted(EDGES[1:-1], angles, side="right")
    return {
        "known": float(wrong[angles < KNOWN].mean()),
        "novel": float(wrong[angles >= KNOWN].mean()),
        "ranges": [float(wrong[place == k].mean()) for k in range(len(EDGES) - 1)],
    }


def table(results):
    equally, best = ([f"{name}: known", f"{name}: novel"] for name in ("equal", "best"))
    header = ["test error, %", *equally, "source", *best]
    rows = [[*header, "parameters", "images learned"]]
    for part, seeds in results.items():
        row = [part]
        for name in ("equal", "best"):
            row += [percent([f[name][which] for f in seeds]) for which in ("known", "novel")]
            row += [SOURCE.get(part, "–")] if name == "equal" else []
        rows.append([*row, *cost_cells(seeds)])
    return rows


def headline(results):
    rows = []
    for part, seeds in results.items():
        ours = " / ".join(percent([f["equal"][key] for f in seeds]) for key in ("known", "novel"))
        what = f"{part}: test error at equal validation, on rotations that were learned / on others"
        rows.append(line(what, SOURCE.get(part, "–"), f"{ours} %", seeds))
    return rows


def draw(results, path, lab):
    """Plot the error against rotation, with a digit for each range, and the validation curves."""
    figure = new_figure(11, 4.4)
    grid = figure.subplot_mosaic([["turn", "learn"], ["digits", "learn"]], height_ratios=(4, 1))
    turn, learn, digits = (grid[name] for name in ("turn", "learn", "digits"))
    middles = (EDGES[1:] + EDGES[:-1]) / 2
    turn.axvspan(EDGES[0], KNOWN, color=INK, alpha=0.15, linewidth=0)
    place = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "top"}
    turn.annotate("learned", (EDGES[1], 0.97), **place)
    for part, seeds in results.items():
        colour, marker = STYLES[part]
        wrong = 100 * np.array([f["equal"]["ranges"] for f in seeds])
        turn.plot(middles, wrong.mean(axis=0), color=colour, marker=marker, label=part)
        low, high = wrong.min(axis=0), wrong.max(axis=0)
        turn.fill_between(middles, low, high, color=colour, alpha=0.15, linewidth=0)
        for f in seeds:
            unsure, chosen = 100 * (1 - np.array(f["curve"])), f["epochs"]["equal"]
            learn.plot(np.arange(1, len(unsure) + 1), unsure, color=colour, alpha=0.5)
            learn.plot(chosen, unsure[chosen - 1], marker, color=colour)
    turn.set(title="Digits at rotations never seen", ylim=(0, None))
    turn.set_ylabel(f"test error, %{all_seeds(results, 'band')}")
    turn.set(xlim=EDGES[[0, -1]], xticks=EDGES.round(1))
    learn.set(title="Known rotations: compared at equal accuracy")
    learn.set(xlabel="epochs (marks: those compared)", ylabel="validation error, %")
    learn.set_yscale("symlog", linthresh=1)
    learn.set_yticks((ticks := (0, 0.5, 1, 2, 5, 10, 20, 50)), ticks)
    for axes in (turn, learn):
        axes.grid(alpha=0.3)
    learn.xaxis.get_major_locator().set_params(integer=True)
    learn.legend(*turn.get_legend_handles_labels(), loc="upper right")
    _draw_digits(digits, middles)
    lab.save(figure, path)


def _draw_digits(axes, angles):
    """Draw a row of rotated fours, each below its angle on the horizontal axis."""
    poses = np.zeros((len(angles), len(POSE_NAMES)))
    for name, values in (("rotation", angles), ("scale", 1), ("thickness", 2)):
        poses[:, POSE_NAMES.index(name)] = values
    pictures = drawn.draw(np.full(len(angles), 4), poses)[:, 0]
    axes.imshow(np.hstack(pictures), cmap="gray_r", extent=(*EDGES[[0, -1]], 0, 1), aspect="auto")
    axes.set(yticks=[], xticks=[], xlabel="rotation, degrees")
    axes.spines[:].set_visible(False)
