"""dynamic: trained networks are tested with couplings that do not belong to the image.

Routing is called dynamic because each image gets its own couplings. If this matters, a trained
network must suffer when its couplings are replaced by others: by equal ones, by their mean over the
test images, or by those of another test image with the same or with other classes. Nothing is
trained again. Mitterreiter et al. (2023) find no parse tree in the couplings of a CapsNet, and Paik
et al. (2019) find routing often worse than equal or random couplings.

The CapsNets learn single digits at any place in 40×40 pixels, the counterpart of section 5.2 of
Sabour et al. (2017), so pairs of digits fit into the images: each digit of a pair is at a place
where single digits were learned, too. "Joined" digits lie one below the other; "overlapping" ones
are shifted by up to 4 pixels, as in `overlap`. `spherical-3` and `spherical-1` are the networks
`spherical` and `one-iteration` of `pairs`, which accept images of any size and see the pairs of
`pairs` and `overlap`.

The networks are tested after their last epoch, because the best one on single digits may be
another for each network. One that was trained with r iterations is also tested with others, up to
30. With one iteration, all couplings are equal.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from minicaps.data import Split
from minicaps.data.batches import shifted
from minicaps.data.compose import compose
from minicaps.data.dataset import generator
from minicaps.experiments import pairs
from minicaps.experiments.affine import framed
from minicaps.experiments.couplings import substituted
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import all_seeds, cost_cells, line, percent, spread
from minicaps.plotting.canvas import BLUE, GREEN, INK, ORANGE, new_figure

TITLE = "trained networks with the couplings of other images, or with equal ones"
SEEDS = 3
DATA = "mnist"
MOST = 10  # pixels by which a digit is shifted in 40×40 pixels; two joined digits lie so far apart
PICTURES = 5000  # test images of each kind
ITERATIONS = (1, 2, 3, 5, 10, 30)
KINDS = {"single": "one digit", "joined": "two, joined", "overlapping": "two, overlapping"}
REPLACED = {
    "uniform": "equal ones",
    "mean": "their mean over the images",
    "same": "those of another image of the same classes",
    "other": "those of an image of other classes",
}
STYLES = {
    "own": (INK, "o-"),
    "mean": (BLUE, "s--"),
    "same": (GREEN, "^-."),
    "other": (ORANGE, "D:"),
}

KEY = {
    "capsnet-3": "the small CapsNet, trained with three iterations of routing",
    "capsnet-1": "the same, trained with one iteration, so with equal couplings",
    "spherical-3": "the network of `pairs` with spherical routing, trained with three iterations",
    "spherical-1": "the same, trained with one iteration",
    "single": "one digit per image, as in training",
    "joined": "two digits, one below the other",
    "overlapping": "two digits, each shifted by up to 4 pixels from the middle",
    "r": "number of routing iterations in the test",
    "own": "accuracy, %, with the image's own couplings; of pairs, both digits must be found",
    "uniform": "with equal couplings",
    "mean": "with the mean couplings of the test images of this kind",
    "same": "with the couplings of another image with the same classes",
    "other": "with the couplings of an image with other classes",
    "changed": "share of the predictions, %, that differ from those with the own couplings",
    "entropy": "of the own couplings: 1 if a child goes to all parents equally, 0 if to one",
    "spread": "standard deviation of a coupling over the images, in units of an equal coupling",
}
TESTED = f"{PICTURES:,} images of each kind, from MNIST test digits moved anew for each seed"
COMPARED = (("capsnet-3", "capsnet-1"), ("spherical-3", "spherical-1"))
SPHERICAL = {"spherical-3": "spherical", "spherical-1": "one-iteration"}  # names in `pairs`


def parts(quick):
    common = {"data": DATA, "validation": 500 if quick else 5000, "schedule": "cosine"}
    capsnet = common | {"model": "capsnet", "shift": MOST, "learning_rate": 0.003}
    capsnet |= {"epochs": 1 if quick else 6}
    return {
        "capsnet-3": capsnet | {"iterations": 3},
        "capsnet-1": capsnet | {"iterations": 1},
        **{part: pairs.parts(quick)[name] for part, name in SPHERICAL.items()},
    }


def measure(lab, part, settings, seed):
    digits, wide = lab.data(DATA, seed, settings.get("limit")), settings["model"] == "capsnet"
    options = settings | {"seed": seed}
    if wide:
        wider = replace(digits, train=framed(digits.train), test=framed(digits.test))
        folder = lab.train(part, wider, options)
    else:
        # `pairs` reads the checkpoints of all epochs
        folder = lab.of("pairs").train(SPHERICAL[part], digits, options, keep_epochs=True)
    model, figures, right = lab.model(folder / "last.npz"), {}, {}
    if not wide:  # a network that was trained with one iteration has no update of its own
        routing = model.classes.routing
        routing.route = partial(routing.route, update="spherical")
    for kind in KINDS:
        split, trained = shown(kind, digits, seed, wide), settings.get("iterations", 3)
        figures[kind], right[kind] = substituted(lab, model, split, ITERATIONS, trained, seed)
    return {"kinds": figures, **tested(right), **cost(read_summary(folder))}


def shown(kind, digits, seed, wide):
    """Make the test images of a kind, with labels (n, J) of zeros and ones.

    wide: whether all images have 40×40 pixels.
    """
    test, classes = digits.test, len(digits.class_names)
    first = np.arange(min(PICTURES, len(test)))
    if kind == "single":
        split = test.take(first)
        if wide:
            moves = generator(seed, 7).integers(-MOST, MOST + 1, (len(split), 2))
            split = Split(shifted(framed(split).images, moves), split.labels)
        return Split(split.images, np.eye(classes, dtype=np.uint8)[split.labels])
    layout = "overlap" if kind == "overlapping" or wide else "below"
    pairs = compose(test, classes, layout=layout, seed=seed)
    if wide:
        edge = (framed(test.take(slice(1))).shape[1] - test.shape[1]) // 2
        pairs = replace(pairs, shift=edge)
    if wide and kind == "joined":
        moves = np.broadcast_to([[-MOST, 0], [MOST, 0]], pairs.offsets.shape)
        pairs = replace(pairs, offsets=moves)
    return pairs.take(first)


def table(results):
    rows = [["", "r", "own", *REPLACED, *(f"{name}, changed" for name in REPLACED)]]
    rows[0] += ["entropy", "spread", "parameters", "images learned"]
    for part, seeds in results.items():
        for kind in KINDS:
            for r in (3, ITERATIONS[-1]):
                found = [f["kinds"][kind][ITERATIONS.index(r)] for f in seeds]
                row = [f"{part}, {kind}", str(r)]
                row += [_accuracy(found, name, seeds) for name in ("own", *REPLACED)]
                row += [percent([f["against"][n]["changed"] for f in found]) for n in REPLACED]
                row += [spread([f[name] for f in found], ".2f") for name in ("entropy", "spread")]
                rows.append([*row, *cost_cells(seeds)])
    return rows


def _accuracy(found, name, seeds):
    return percent([f["against"][name]["accuracy"] for f in found], count=seeds[0].get("tested"))


def headline(results):
    rows = []
    for part, seeds in results.items():
        for kind in KINDS:
            found = [f["kinds"][kind][ITERATIONS.index(3)] for f in seeds]
            what = f"{part}, {kind}: accuracy with the own couplings of three iterations / with"
            what += " equal ones / with those of an image of other classes"
            shares = (_accuracy(found, name, seeds) for name in ("own", "uniform", "other"))
            rows.append(line(what, "–", " / ".join(shares) + " %", seeds))
    return rows


def draw(results, path, lab):
    """Plot the errors with own and other couplings against the number of iterations."""
    figure = new_figure(11, 3 * len(results))
    panels = figure.subplots(len(results), len(KINDS), sharex=True, squeeze=False)
    for row, (part, seeds) in zip(panels, results.items(), strict=True):
        for axes, (kind, title) in zip(row, KINDS.items(), strict=True):
            for name, (colour, look) in STYLES.items():
                _draw_errors(axes, [f["kinds"][kind] for f in seeds], name, colour, look)
            axes.set(title=f"{part}: {title}", xscale="log", ylim=(0, None))
            axes.set_xticks(ITERATIONS, map(str, ITERATIONS))
            axes.minorticks_off()
            axes.grid(alpha=0.3)
        row[0].set_ylabel("wrong, %")
    panels[0, 0].set_ylabel(f"wrong, %{all_seeds(results, 'band')}")
    for axes in panels[-1]:
        axes.set_xlabel("iterations (1: equal couplings)")
    figure.suptitle("Whose couplings?", color=INK)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(STYLES), frameon=False)
    lab.save(figure, path)


def _draw_errors(axes, seeds, name, colour, look):
    """Plot the mean error and its range over seeds; one iteration has equal couplings only."""
    first = 0 if name == "own" else 1
    wrong = [[100 * (1 - f["against"][name]["accuracy"]) for f in one[first:]] for one in seeds]
    style = {"color": colour, "markersize": 4, "label": name}
    axes.plot(ITERATIONS[first:], np.mean(wrong, axis=0), look, **style)
    low, high = np.min(wrong, axis=0), np.max(wrong, axis=0)
    axes.fill_between(ITERATIONS[first:], low, high, color=colour, alpha=0.15, linewidth=0)
