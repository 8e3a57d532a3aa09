"""squash: five kinds of squash at the end of the network and in the middle, and none in the middle.

Jianlin Su 2018 (kexue.fm/archives/4819) found "half" a little better than the paper's squash and
left open whether the capsules in the middle need one at all; he gives no numbers. Here, the small
CapsNet is trained without a decoder on part of MNIST. The squash is changed in one layer at a time,
while the other layer keeps the paper's squash. All networks use the learning rate that was chosen
for the paper's squash, and none is Su's network, so the claim about "half" is not tested as he made
it. The lengths of the primary capsules on test images indicate how much effect a squash in the
middle can have.
"""

import numpy as np

from minicaps import ops
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import cost_cells, error, line
from minicaps.plotting.canvas import BLUE, INK, PINK, SKY, new_figure
from minicaps.tensor import Tensor

TITLE = "five kinds of squash, at the end and in the middle, and none in the middle"
SEEDS = 3
KINDS = ("paper", "half", "tanh", "exp", "rational")
LAYERS = {"end": "squash", "middle": "primary_squash"}
STYLES = {"both": (BLUE, "D"), "end": (PINK, "o"), "middle": (SKY, "s")}
PLACES = {"both": "in both layers", "end": "at the end", "middle": "in the middle"}
HEADLINE = {
    "both-paper": "the paper's squash in both layers",
    "end-half": "half at the end, the paper's in the middle",
    "middle-none": "none in the middle, the paper's at the end",
}
SOURCE = {"end-half": "a little better than the paper's", "middle-none": "an open question"}
PICTURES = 200  # test images whose primary capsules are measured

KEY = {
    "at the end": "in the class capsules; those in the middle keep the paper's squash",
    "in the middle": "in the primary capsules; those at the end keep the paper's squash",
    "paper": "a length n becomes n² / (1 + n²)",
    "half": "n² / (½ + n²)",
    "tanh": "tanh n",
    "exp": "1 − exp(−n)",
    "rational": "n / (1 + n)",
    "none": "n stays unchanged",
    "lengths": "of the primary capsules on test digits: median (5 % – 95 %), averaged over seeds",
    "source": "Jianlin Su 2018, about another network and without numbers",
}
TESTED = "the MNIST test digits, the same for every seed"
COMPARED = tuple(("both-paper", part) for part in ("end-half", "middle-rational", "middle-none"))


def parts(quick):
    common = {"data": "mnist", "limit": 11_000, "model": "capsnet", "reconstruction": 0.0}
    common |= {"validation": 500, "epochs": 1} if quick else {"validation": 1000, "epochs": 4}
    common |= dict.fromkeys(LAYERS.values(), "paper")
    wanted = {"both-paper": common}
    for layer, option in LAYERS.items():
        wanted |= {f"{layer}-{kind}": common | {option: kind} for kind in KINDS[1:]}
    return wanted | {"middle-none": common | {"primary_squash": "none"}}


def measure(lab, part, settings, seed):
    options = settings | {"seed": seed}
    digits = lab.data(options["data"], seed, options["limit"])
    folder = lab.train(part, digits, options)
    summary = read_summary(folder)
    model = lab.model(folder)
    asked = digits.test.take(slice(PICTURES))
    lengths = lab.outputs(model, lambda x: ops.length(model.primary_capsules(x)), asked)
    return {
        "accuracy": summary["test_accuracy"],
        "lengths": [float(q) for q in np.percentile(lengths, (5, 50, 95))],
        **tested(lab.right(model, digits.test)),
        **cost(summary),
    }


def table(results):
    header = ["squash", "test error, %", "source", "lengths in the middle"]
    rows = [[*header, "parameters", "images learned"]]
    for part, seeds in results.items():
        low, median, high = np.mean([f["lengths"] for f in seeds], axis=0)
        row = [_name(part), error(seeds), SOURCE.get(part, "–")]
        row.append(f"{median:.2f} ({low:.2f} – {high:.2f})")
        rows.append([*row, *cost_cells(seeds)])
    return rows


def headline(results):
    rows = []
    for part, what in HEADLINE.items():
        if seeds := results.get(part):
            source, ours = SOURCE.get(part, "–"), f"{error(seeds)} %"
            rows.append(line(f"{what}: test error", source, ours, seeds))
    return rows


def _name(part):
    layer, kind = part.split("-")
    return f"{kind} {PLACES[layer]}"


def draw(results, path, lab):
    """Plot the squash functions, the resulting test errors, and the primary capsules' lengths."""
    figure = new_figure(11, 3.8)
    kinds, errors, lengths = figure.subplots(1, 3)
    _draw_kinds(kinds)
    names = (*KINDS, "none")
    for part, seeds in results.items():
        layer, kind = part.split("-")
        row = names.index(kind)
        colour, marker = STYLES[layer]
        wrong = [100 * (1 - f["accuracy"]) for f in seeds]
        height = row + {"end": -0.2, "both": 0, "middle": 0.2}[layer]
        errors.plot(wrong, [height] * len(wrong), marker, color=colour, alpha=0.7, markersize=5)
        errors.plot(np.mean(wrong), height, "|", color=colour, markersize=13, markeredgewidth=2.5)
        if layer != "end":
            low, median, high = np.mean([f["lengths"] for f in seeds], axis=0)
            lengths.plot([low, high], [row, row], color=colour, linewidth=3, alpha=0.6)
            lengths.plot(median, row, marker, color=colour)
    errors.set(title="Test error by layer and kind", xlabel="test error, % (bar: mean)")
    lengths.set(title="Lengths of the primary capsules", xlabel="5 %, median and 95 % quantiles")
    lengths.set_xlim(0, None)
    for axes in (errors, lengths):
        axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5))
        axes.grid(alpha=0.3)
    for layer, (colour, marker) in STYLES.items():
        errors.plot([], [], marker, color=colour, label=PLACES[layer])
    title = "Layer changed; the other keeps the paper's squash"
    handles, labels = errors.get_legend_handles_labels()
    figure.legend(handles, labels, title=title, loc="outside lower right", ncols=3)
    lab.save(figure, path)


def _draw_kinds(axes):
    n = np.linspace(0, 3, 200)[:, None]
    for kind, style in zip(KINDS, ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1))), strict=True):
        squashed = ops.length(ops.squash(Tensor(n), kind=kind)).numpy()
        axes.plot(n[:, 0], squashed, linestyle=style, color=INK, label=kind)
    axes.plot(n[:, 0], n[:, 0], color=INK, alpha=0.3, label="none")
    axes.set(title="Five ways to shorten a vector", xlabel="length before", ylabel="length after")
    axes.set(ylim=(0, 1.05), xlim=(0, 3))
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    axes.grid(alpha=0.3)
