"""pairs: networks that learned single digits are shown two different ones in a picture.

The experiment of Jianlin Su 2018 (kexue.fm/archives/4819), who joins them vertically. Learned with
55,000 of MNIST's training digits; 1,000 pairs of the other 5,000 are for the curve over the epochs,
on which every choice was made; test digits are shown once, to the network of the last epoch.
"""

import numpy as np

from minicaps.data.compose import compose
from minicaps.experiments.lab import cost, read_summary
from minicaps.experiments.results import all_seeds, cost_cells, line, percent
from minicaps.models.multilabel import highest, seen
from minicaps.plotting.canvas import BLUE, INK, ORANGE, new_figure

TITLE = "trained on single digits, tested on two joined in one picture"
SEEDS = 3
DATA = "mnist"
COLOURS = (INK, BLUE, ORANGE, "#009E73", "#999999", "#CC79A7")
LAYOUTS = ("below", "beside")
CURVE = 1000  # pairs for every point of the curve

# % of the pairs that the source found: the two highest are right; and both are above ½ as well
SOURCE = {
    "spherical": "≈ 95 / ≈ 95",
    "recompute": "> 90 / > 90",
    "pooling": "≈ 40 / ≈ 10",
}

KEY = {
    "spherical": "capsules; couplings by the products of votes with a capsule's direction",
    "recompute": "capsules; by the products of votes with a capsule",
    "accumulate": "capsules; the same, added up over the iterations, as Sabour et al. 2017 do",
    "one-iteration": "capsules with equal couplings",
    "pooling": "a CNN with pooling over all places in the place of routing",
    "-on-pairs": "trained on pairs, one below the other, and not on single digits",
    "single": "share of single test digits, %, that are recognised",
    "below": "one digit below the other: share of pairs, %, whose two highest outputs are right",
    "beside": "two digits side by side: the same",
    "> ½": "and both of these are above ½ as well",
    "only": "and no other output is",
    "source": "Jianlin Su 2018, one below the other: the two highest are right / and above ½",
}


def parts(quick):
    """All have the same convolutions, and nearly as many parameters."""
    common = {
        "data": DATA,
        "validation": 500 if quick else 5000,
        "shift": 0,
        "epochs": 2 if quick else 6,
        "schedule": "cosine",
        "batch_size": 16 if quick else 64,
    }
    if quick:
        common["limit"] = 1500  # training pictures; six networks take two minutes then
    capsules = common | {"model": "capsule-cnn"}
    return {
        "spherical": capsules | {"update": "spherical"},
        "recompute": capsules | {"update": "recompute"},
        "accumulate": capsules | {"update": "accumulate"},
        # Learned couplings shared by all positions, as the weights are, are factors of the weights
        "one-iteration": capsules | {"iterations": 1},
        "pooling": common | {"model": "pooling-cnn"},
        "pooling-on-pairs": common | {"model": "pooling-cnn", "compose": 2, "layout": "below"},
    }


def measure(lab, part, settings, seed):
    name, limit = settings["data"], settings.get("limit")
    composed = {key: settings.get(key) for key in ("compose", "layout")}
    learned = lab.data(name, seed, limit, **composed)
    folder = lab.train(part, learned, settings | {"seed": seed})
    digits = lab.data(name, seed, limit)
    summary = read_summary(folder)
    held_out = digits.cut_validation(settings["validation"], seed)[1].take(slice(CURVE))

    def network(epoch):
        return lab.model(folder / f"epoch-{epoch}.npz")

    def shares(epoch, split, layout):
        pairs = compose(split, len(digits.class_names), layout=layout, seed=seed)
        return answers(lab.activations(network(epoch), pairs), pairs.labels)

    last = summary["epochs"]
    return {
        "single": lab.accuracy(network(last), digits.test),
        **{layout: shares(last, digits.test, layout) for layout in LAYOUTS},
        "curve": [shares(epoch, held_out, "below") for epoch in range(1, last + 1)],
        **cost(summary),
    }


def answers(activations, labels):
    """How many of the pairs are right, as shares, by three measures; activations (n, J), and labels
    (n, J) that are 1 for the two classes that are there.

    [the two highest are right; they are above ½ as well; nothing else is above ½ besides].
    """
    present, above = labels > 0, seen(activations)
    right = (highest(activations, 2) == present).all(axis=1)
    sure = right & (above | ~present).all(axis=1)
    return [float(share.mean()) for share in (right, sure, (above == present).all(axis=1))]


def table(results):
    below, beside = ([name, f"{name}, > ½", f"{name}, only"] for name in LAYOUTS)
    rows = [["%", "single", *below, "source", *beside, "parameters", "seconds"]]
    for part, seeds in results.items():
        row = [part, percent([figures["single"] for figures in seeds])]
        for layout in LAYOUTS:
            row += [percent([figures[layout][k] for figures in seeds]) for k in range(3)]
            row += [SOURCE.get(part, "–")] if layout == "below" else []
        rows.append([*row, *cost_cells(seeds)])
    return rows


def headline(results):
    rows = []
    for part, seeds in results.items():
        top, sure = (percent([figures["below"][k] for figures in seeds]) for k in (0, 1))
        source = SOURCE.get(part, "–") + (" %" if part in SOURCE else "")
        what = f"{part}: pairs, one below the other, with both found / and both above ½"
        rows.append(line(what, source, f"{top} / {sure} %", seeds))
    return rows


def draw(results, path, lab):
    """Draw how the pairs come out right as single digits are learned."""
    figure = new_figure(11, 3.8)
    axes = figure.subplots(1, 3, sharey=True)
    styles = zip(COLOURS, "os^Dv*", strict=True)
    for (part, seeds), (colour, marker) in zip(results.items(), styles, strict=False):
        curves = 100 * np.array([seed["curve"] for seed in seeds])  # (seeds, epochs, 3)
        epochs = np.arange(1, curves.shape[1] + 1)
        for k, panel in enumerate(axes):
            mean, low, high = (f(curves[:, :, k], axis=0) for f in (np.mean, np.min, np.max))
            panel.plot(epochs, mean, color=colour, marker=marker, markersize=4, label=part)
            panel.fill_between(epochs, low, high, color=colour, alpha=0.15, linewidth=0)
    figure.suptitle(
        "Two digits, joined vertically, shown to networks that learn single ones", color=INK
    )
    titles = ("the two highest are right", "… and both are above ½", "… and nothing else is")
    for panel, title in zip(axes, titles, strict=True):
        panel.set(title=title, xlabel="epochs of training", ylim=(0, 100))
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.grid(alpha=0.3)
    axes[0].set_ylabel(f"pairs of held-out digits, %{all_seeds(results, 'band')}")
    axes[2].legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    lab.save(figure, path)
