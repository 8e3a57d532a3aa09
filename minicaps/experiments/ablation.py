"""ablation: the effect of reconstruction, of routing iterations and of the margin loss.

Table 1 of Sabour et al. (2017) lists test errors on MNIST of a network with 8.2 M parameters (6.8 M
without the decoder), trained on all 60,000 images. Here, the small CapsNet is trained on 55,000
images for twelve epochs. `dense-cnn`, with linear layers in place of capsules but with the same
loss and decoder, takes the place of the paper's baseline, a CNN of 35 M parameters with a test
error of 0.39%, which would take longer to train than all other networks together. Its learning rate
is the better of two on held-out images, with seed 0; the CapsNets have the higher one, their
default. All networks are tested after their last epoch. Differences of 0.1% are expected, of the
order of what seeds do, so there are six seeds, and networks with the same seed are compared in
pairs. On Fashion-MNIST, the networks learn a quarter of the images for four epochs; everywhere, the
rate falls along a cosine. If the loss of a CapsNet is the cross-entropy, class probabilities are
capsule lengths divided by the sum of all lengths, and the decoder weighs less beside it, because
the cross-entropy is larger than the margin loss.
"""

import numpy as np

from minicaps.experiments.equal import DECIDES, best_rate, history
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import cost_cells, distinct, error, line
from minicaps.plotting.canvas import BLUE, INK, ORANGE, PINK, new_figure

TITLE = "reconstruction on or off, r = 1 or 3, margin loss or cross-entropy"
SEEDS = 6
DATA = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
RECONSTRUCTION = 0.0005  # the paper's weight
RATES = [0.003, 0.001]
NETWORKS = {
    "r=1": {"iterations": 1, "reconstruction": 0.0},
    "r=1, reconstruction": {"iterations": 1, "reconstruction": RECONSTRUCTION},
    "r=3": {"iterations": 3, "reconstruction": 0.0},
    "r=3, reconstruction": {"iterations": 3, "reconstruction": RECONSTRUCTION},
    "r=3, reconstruction, cross-entropy": {
        "iterations": 3, "reconstruction": RECONSTRUCTION, "loss": "cross-entropy",
    },
    "dense-cnn, reconstruction": {
        "model": "dense-cnn", "reconstruction": RECONSTRUCTION, "loss": "margin",
        "learning_rate": RATES,
    },
}  # fmt: skip
BUDGET = {
    "mnist": {"validation": 5000, "epochs": 12, "schedule": "cosine"},
    "fashion-mnist": {"limit": 16_000, "validation": 1000, "epochs": 4, "schedule": "cosine"},
}
# Test error in %: mean and standard deviation of 3 trials
SOURCE = {
    "r=1": (0.34, 0.032),
    "r=1, reconstruction": (0.29, 0.011),
    "r=3": (0.35, 0.036),
    "r=3, reconstruction": (0.25, 0.005),
}

KEY = {
    "r=": "number of routing iterations; the loss is the margin loss unless the row names another",
    "reconstruction": f"with a decoder that redraws the image; loss weight: {RECONSTRUCTION}",
    "cross-entropy": "in place of the margin loss; probabilities: lengths divided by their sum",
    "dense-cnn": "the same convolutions, loss and decoder, then linear layers",
    "source": "MNIST, the paper's network of 8.2 M parameters, trained on all 60,000 images",
    "rate": "learning rate on MNIST / on Fashion-MNIST",
    "images learned": "shown in training, on MNIST / on Fashion-MNIST; without the other rate",
    "±": "mean ± sample standard deviation over the seeds (source: over 3 trials)",
}
TESTED = "the test images of each data set, the same for every seed"
COMPARED = tuple(
    (f"{data}, {first}", f"{data}, {second}")
    for data in DATA
    for first, second in (
        ("r=3, reconstruction", "r=1"),
        ("r=3, reconstruction", "r=1, reconstruction"),
        ("r=3, reconstruction", "r=3"),
        ("r=1, reconstruction", "r=1"),
        ("r=3", "r=1"),
        ("r=3, reconstruction", "r=3, reconstruction, cross-entropy"),
        ("r=3, reconstruction", "dense-cnn, reconstruction"),
    )
)


def parts(quick):
    budget = {data: {"validation": 500, "epochs": 1} if quick else BUDGET[data] for data in DATA}
    common = {"model": "capsnet", "learning_rate": RATES[:1]}
    return {
        f"{data}, {name}": common | {"data": data} | budget[data] | own
        for data in DATA
        for name, own in NETWORKS.items()
    }


def measure(lab, part, settings, seed):
    name = part.replace(", ", "-").replace("=", "")

    def train(rate, seed=DECIDES):
        digits = lab.data(settings["data"], seed, settings.get("limit"))
        options = settings | {"seed": seed, "learning_rate": rate}
        return lab.train(f"{name}-{rate}", digits, options)

    rate, scores = best_rate(train, settings["learning_rate"], decided=lab.decided(part))
    folder = train(rate, seed)
    right = lab.right(lab.model(folder / "last.npz"), lab.data(settings["data"], seed).test)
    return {
        "accuracy": float(right.mean()),
        "rate": rate,
        "searched": scores,
        "history": history(folder),
        **tested(right),
        **cost(read_summary(folder)),
    }


def table(results):
    header = ["test error, %", "MNIST", "source", "Fashion-MNIST", "rate", "parameters"]
    rows = [[*header, "images learned"]]
    for name in NETWORKS:
        found = {data: results.get(f"{data}, {name}") for data in DATA}
        mnist, fashion = (error(seeds) if seeds else "–" for seeds in found.values())
        if there := [seeds for seeds in found.values() if seeds]:
            costs = [cost_cells(seeds) for seeds in there]
            learned = distinct(images for _, images in costs)
            rate = distinct(f"{seeds[0]['rate']:g}" for seeds in there)
            rows.append([name, mnist, _source(name), fashion, rate, costs[0][0], learned])
    return rows


def _source(name):
    return "{:.2f} ± {:.3f}".format(*SOURCE[name]) if name in SOURCE else "–"


def headline(results):
    rows = []
    for part, seeds in results.items():
        data, name = part.split(", ", 1)
        source = f"{_source(name)} %" if data == "mnist" and name in SOURCE else "–"
        name = name.replace("r=1", "1 iteration").replace("r=3", "3 iterations")
        rows.append(line(f"{DATA[data]}, {name}: test error", source, f"{error(seeds)} %", seeds))
    return rows


def draw(results, path, lab):
    """Plot the test errors of all networks, together with those in the paper."""
    figure = new_figure(11, 3.6)
    panels = figure.subplots(1, len(DATA), sharey=True)
    names = list(NETWORKS)
    for axes, (data, title) in zip(panels, DATA.items(), strict=True):
        for row, name in enumerate(names):
            wrong = [100 * (1 - f["accuracy"]) for f in results.get(f"{data}, {name}", [])]
            colour, marker = (PINK, "s") if "entropy" in name else (BLUE, "o")
            if name.startswith("dense"):
                colour, marker = ORANGE, "^"
            axes.plot(wrong, [row] * len(wrong), marker, color=colour, alpha=0.6, markersize=6)
            if wrong:
                axes.plot(np.mean(wrong), row, "|", color=colour, markersize=20, markeredgewidth=3)
            if data == "mnist" and name in SOURCE:
                axes.plot(SOURCE[name][0], row, "D", color=INK, markersize=6)
        axes.set(title=title, xlabel="test error, %", ylim=(len(names) - 0.5, -0.5))
        axes.grid(alpha=0.3)
    panels[0].set_yticks(range(len(names)), [name.replace(", cross", ",\ncross") for name in names])
    for colour, marker, text in (
        (BLUE, "o", "margin loss, each seed (bar: mean)"),
        (PINK, "s", "cross-entropy"),
        (ORANGE, "^", "without capsules"),
        (INK, "D", "the paper: larger network, all images"),
    ):
        panels[0].plot([], [], marker, color=colour, label=text)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    lab.save(figure, path)
