"""pairs: networks trained on single digits are shown two different digits in one image.

The experiment follows a post by Jianlin Su from 2018 (kexue.fm/archives/4819), in which the digits
are joined vertically. The networks are trained on 55,000 of the MNIST training digits. The
remaining 5,000 digits supply 1,000 pairs for the curve over the epochs, on which all choices are
based. The test digits are used only once, to evaluate the network from the last epoch. As in the
post, absent classes have weight 0.25 in the margin loss, and training lasts ten epochs (but 20 for
pooling there).

With one iteration, all couplings are 1/J, and all positions share W. A capsule is then squash(W_jᵀ
Σ_i u_i / J), the squash of a linear map of *sum* pooling, whereas `pooling` takes the *mean*. If a
second digit is joined below, the feature map grows from 8×8 to 22×8 positions. The sum keeps each
digit's contribution, but the mean divides it by 2.75. Without a bias, capsules would rank the
classes alike, but the layers that follow `pooling` have biases. Only the difference between a
routing and `one-iteration` is due to routing. `pooling-sum` has the weights of `pooling` and
multiplies its mean by the growth of the map. This rescaled mean is the sum over positions, except
for a factor that is the same for all images and is learned with the weights. `pooling-max` takes
the maximum over all positions, in training, too.

Results that were stored with a weight of 0.5 and six epochs are `pairs, 6 epochs` in the tables.
"""

import numpy as np

from minicaps.data.compose import compose
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import accuracy, all_seeds, cost_cells, line, percent
from minicaps.models.multilabel import highest, seen
from minicaps.plotting.canvas import AMBER, BLUE, INK, ORANGE, PINK, SKY, new_figure

TITLE = "trained on single digits, tested on two joined in one image"
SEEDS = 3
DATA = "mnist"
STYLES = {
    "spherical": (SKY, "o-"),
    "recompute": (PINK, "s-"),
    "accumulate": (BLUE, "X-"),
    "one-iteration": (AMBER, "D-"),
    "pooling": (ORANGE, "^-"),
    "pooling-sum": (ORANGE, "P--"),
    "pooling-max": (ORANGE, "*:"),
    "pooling-on-pairs": (ORANGE, "v-"),
}
LAYOUTS = ("below", "beside")
CURVE = 1000  # pairs per point of the curve

# Published share of pairs, %: the two highest outputs are correct / and both are above ½
SOURCE = {
    "spherical": "≈ 95 / ≈ 95",
    "recompute": "> 90 / > 90",
    "pooling": "≈ 40 / ≈ 10",
}

KEY = {
    "spherical": "capsules; couplings from the products of votes with a capsule's direction",
    "recompute": "capsules; couplings from the products of votes with a capsule",
    "accumulate": "capsules; the same, summed over the iterations, as in Sabour et al. 2017",
    "one-iteration": "capsules with equal couplings, which take the sum over all positions",
    "pooling": "a CNN that takes the mean over all positions in place of routing",
    "pooling-sum": "the same network, with its mean multiplied by the growth of the map",
    "pooling-max": "a CNN that takes the maximum over all positions",
    "-on-pairs": "trained on pairs, one digit below the other, instead of on single digits",
    "single": "share of single test digits, %, that are classified correctly",
    "below": "one digit below the other: share of pairs, %, whose two highest outputs are correct",
    "beside": "the same for two digits side by side",
    "> ½": "and both of these are also above ½",
    "only": "and no other output is above ½",
    "source": "Jianlin Su 2018, one below the other: two highest outputs correct / and above ½",
}
TESTED = "pairs of MNIST test digits, composed anew for each seed"
COMPARED = (
    ("spherical", "one-iteration"),
    ("recompute", "one-iteration"),
    ("accumulate", "one-iteration"),
    ("one-iteration", "pooling"),
    ("one-iteration", "pooling-sum"),
    ("one-iteration", "pooling-max"),
    ("spherical", "pooling-on-pairs"),
)


def parts(quick):
    """All networks have the same convolutions and nearly the same number of parameters."""
    common = {
        "data": DATA,
        "validation": 500 if quick else 5000,
        "shift": 0,
        "absent_weight": 0.25,
        "epochs": 2 if quick else 10,
        "schedule": "cosine",
        "batch_size": 16 if quick else 64,
    }
    if quick:
        common["limit"] = 1200  # training images, so that seven networks take two minutes
    capsules = common | {"model": "capsule-cnn"}
    return {
        "spherical": capsules | {"update": "spherical"},
        "recompute": capsules | {"update": "recompute"},
        "accumulate": capsules | {"update": "accumulate"},
        # No learned couplings: shared by all positions, like the weights, they only scale those
        "one-iteration": capsules | {"iterations": 1},
        "pooling": common | {"model": "pooling-cnn"},
        "pooling-sum": common | {"model": "pooling-cnn", "pooling": "sum"},
        "pooling-max": common | {"model": "pooling-cnn", "pooling": "max"},
        "pooling-on-pairs": common | {"model": "pooling-cnn", "compose": 2, "layout": "below"},
    }


def measure(lab, part, settings, seed):
    name, limit = settings["data"], settings.get("limit")
    composed = {key: settings.get(key) for key in ("compose", "layout")}
    learned = lab.data(name, seed, limit, **composed)
    rescaled = settings.get("pooling") == "sum"
    if rescaled:  # on single digits, the sum equals the mean
        part, settings = "pooling", parts(lab.quick)["pooling"]
    folder = lab.train(part, learned, settings | {"seed": seed}, keep_epochs=True)
    digits = lab.data(name, seed, limit)
    summary = read_summary(folder)
    held_out = digits.cut_validation(settings["validation"], seed)[1].take(slice(CURVE))

    def network(epoch):
        model = lab.model(folder / f"epoch-{epoch}.npz")
        if rescaled:
            model.pooling = "sum"
        return model

    def shown(epoch, split, layout):
        pairs = compose(split, len(digits.class_names), layout=layout, seed=seed)
        return lab.activations(network(epoch), pairs), pairs.labels

    last = summary["epochs"]
    below, beside = (shown(last, digits.test, layout) for layout in LAYOUTS)
    return {
        "single": lab.accuracy(network(last), digits.test),
        "below": answers(*below),
        "beside": answers(*beside),
        "curve": [answers(*shown(epoch, held_out, "below")) for epoch in range(1, last + 1)],
        **tested({"below": found(*below), "beside": found(*beside)}),
        **cost(summary),
    }


def found(activations, labels):
    """Return booleans (n,), true for the pairs whose classes have the two highest activations."""
    return (highest(activations, 2) == (labels > 0)).all(axis=1)


def answers(activations, labels):
    """Return the fraction of correct pairs by each of three criteria.

    activations: (n, J). labels: (n, J), with a 1 for each of the two classes present.

    The criteria are that the two highest activations belong to the classes present, that these two
    are also above ½, and that no other activation is above ½.
    """
    present, above = labels > 0, seen(activations)
    right = found(activations, labels)
    sure = right & (above | ~present).all(axis=1)
    return [float(share.mean()) for share in (right, sure, (above == present).all(axis=1))]


def table(results):
    below, beside = ([name, f"{name}, > ½", f"{name}, only"] for name in LAYOUTS)
    rows = [["%", "single", *below, "source", *beside]]
    rows[0] += ["parameters", "images learned"]
    for part, seeds in results.items():
        row = [part, accuracy(seeds, "single", digits=1)]
        for layout in LAYOUTS:
            row += [_share(seeds, layout, k) for k in range(3)]
            row += [SOURCE.get(part, "–")] if layout == "below" else []
        rows.append([*row, *cost_cells(seeds)])
    return rows


def _share(seeds, layout, criterion):
    """Format the share of correct pairs by one of the three criteria of `answers`."""
    return percent([figures[layout][criterion] for figures in seeds], 1, seeds[0].get("tested"))


def headline(results):
    rows = []
    for part, seeds in results.items():
        top, sure = (_share(seeds, "below", k) for k in (0, 1))
        source = SOURCE.get(part, "–") + (" %" if part in SOURCE else "")
        what = f"{part}: pairs, one below the other, with both found / and both above ½"
        rows.append(line(what, source, f"{top} / {sure} %", seeds))
    return rows


def draw(results, path, lab):
    """Plot the percentage of correct pairs against the number of training epochs."""
    figure = new_figure(11, 3.8)
    axes = figure.subplots(1, 3, sharey=True)
    for part, seeds in results.items():
        colour, look = STYLES[part]
        curves = 100 * np.array([seed["curve"] for seed in seeds])  # (seeds, epochs, 3)
        epochs = np.arange(1, curves.shape[1] + 1)
        for k, panel in enumerate(axes):
            mean, low, high = (f(curves[:, :, k], axis=0) for f in (np.mean, np.min, np.max))
            panel.plot(epochs, mean, look, color=colour, markersize=4, label=part)
            panel.fill_between(epochs, low, high, color=colour, alpha=0.15, linewidth=0)
    figure.suptitle(
        "Two digits, joined vertically, shown to networks trained on single ones", color=INK
    )
    titles = ("the two highest are correct", "… and both are above ½", "… and nothing else is")
    for panel, title in zip(axes, titles, strict=True):
        panel.set(title=title, xlabel="epochs of training", ylim=(0, 100))
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.grid(alpha=0.3)
    axes[0].set_ylabel(f"pairs of held-out digits, %{all_seeds(results, 'band')}")
    axes[2].legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    lab.save(figure, path)
