"""overlap: two digits laid over each other, each recognised and redrawn on its own.

The MultiMNIST of Sabour et al. 2017, section 6. They learned with 60 million pictures, a CapsNet of
11.4 million parameters and a CNN of 24.6 million, whose width they had raised until it was best.
Here a network sees 275,000: 55,000 training digits with new partners and shifts in each of five
epochs. The CapsNet is the small one, and the CNN is that CapsNet with linear layers in the place of
votes and routing: this is a comparison of layers, and no attempt at their errors.

Each digit moves by up to 4 pixels in each direction on its own. Boxes of 20×20 pixels then overlap
by 73 % in the mean, and those of the ink by less, as most digits are narrower; they say 80 %.

Chosen after 28,000 pictures on 1,000 held-out pairs, by the share of them not recognised (seed 0):
three iterations, batches of 64, rate 0.003: 44 %, and 46 % with ten times the weight of the
reconstruction, which redrew hardly better; batches of 32, rate 0.002: 41 %. The CNN, batches of 32,
rate 0.001: 48 %; a CNN of 1.2 million parameters with pooling, with which the authors had begun:
49 %, and 54 % with batches of 64. Test pairs are shown to the epoch that is best on held-out ones.
"""

from typing import NamedTuple

import numpy as np

from minicaps.data.compose import box_overlap, compose
from minicaps.experiments.lab import cost, read_summary
from minicaps.experiments.results import cost_cells, line, percent
from minicaps.graph import no_grad
from minicaps.models.inputs import tensor_for
from minicaps.models.multilabel import highest, seen
from minicaps.plotting.canvas import BLUE, INK, ORANGE, new_figure
from minicaps.plotting.members import MEMBERS, overlaid

TITLE = "two digits laid over each other: which are they, and what does each look like?"
SEEDS = 3
DATA = "mnist"
SOURCE = {"capsules-3": 5.2, "capsules-1": 7.5, "cnn": 8.1}  # % of pairs not recognised
SOURCE_BOXES = 80  # % that the boxes of two digits overlap
REDRAWN = 500  # test pairs, of which every class is drawn
SHOWN = 8  # of them in the picture

KEY = {
    "capsules-3": "the small CapsNet with three iterations of routing",
    "capsules-1": "the same with one iteration",
    "cnn": "the same convolutions, then linear layers in the place of capsules",
    "digits found": "share of the digits, %, whose class is one of the two with the highest output",
    "pairs missed": "share of the pairs, %, of which a digit is not found",
    "source": "pairs missed of Sabour et al. 2017, after 60,000,000 pictures, by larger networks",
    "exactly two": "share of the pairs, %, where the right two classes, and no other, are above ½",
    "redrawn": "how well digits are redrawn: 100 % less squared error / squared brightness",
    "absent drawn": "absent capsules' squared change of what zeros draw, in % of present ones'",
    "pictures": "how many are learned, each composed anew",
    "boxes overlap": f"% that boxes round two digits' ink have in common; source: {SOURCE_BOXES}",
}


def parts(quick):
    common = {
        "data": DATA,
        "compose": 2,
        "shift": 0,
        "validation": 500 if quick else 5000,
        "epochs": 2 if quick else 5,
        "schedule": "cosine",
        "batch_size": 32,
    }
    capsules = common | {"model": "capsnet", "learning_rate": 0.002, "reconstruction": 0.0005}
    return {
        "capsules-3": capsules | {"iterations": 3},
        "capsules-1": capsules | {"iterations": 1},
        "cnn": common | {"model": "dense-cnn", "learning_rate": 0.001},
    }


def measure(lab, part, settings, seed):
    name, learned = settings["data"], _learned(lab, settings, seed)
    folder = lab.train(part, learned, settings | {"seed": seed})
    summary = read_summary(folder)
    model, pairs = lab.model(folder), _test_pairs(lab, name, seed)
    activations = lab.activations(model, pairs)
    figures = answers(activations, pairs.labels, model.logits)
    if settings["model"] == "capsnet":
        figures |= redrawn(look(lab, model, pairs, REDRAWN))
    return figures | {
        "boxes": box_overlap(pairs.parts(np.arange(len(pairs)))),
        "pictures": (len(learned.train) - settings["validation"]) * summary["epochs"],
        **cost(summary),
    }


def _learned(lab, settings, seed):
    return lab.data(settings["data"], seed, compose=settings["compose"])


def _test_pairs(lab, name, seed):
    digits = lab.data(name, seed)
    return compose(digits.test, len(digits.class_names), seed=seed)


def answers(activations, labels, logits=False):
    """What is recognised in pairs, as shares. activations (n, J), logits or not; labels (n, J), 1
    for the two classes that are there.

    digits: those that are among the two highest. error: pairs of which one is not. sure: pairs of
    which exactly the two classes are seen, with a length or probability above ½.
    """
    found = (highest(activations, 2) & (labels > 0)).sum(axis=1)
    sure = (seen(activations, logits) == labels).all(axis=1)
    shares = {"digits": found / 2, "error": found < 2, "sure": sure}
    return {name: float(share.mean()) for name, share in shares.items()}


class Look(NamedTuple):
    """What capsules make of n pairs of digits.

    digits (n, 2, C, H, W): each alone, in the order of their classes. drawn (n, J, C, H, W): what
    the decoder draws of each capsule alone. change (n, J): the sum of squared differences between
    this and what it draws of zeros. lengths (n, J). present, answered (n, J): which classes are
    there, and which have the two longest capsules, booleans.
    """

    digits: np.ndarray
    drawn: np.ndarray
    change: np.ndarray
    lengths: np.ndarray
    present: np.ndarray
    answered: np.ndarray


def look(lab, model, pairs, count):
    """Look at the first `count` pairs, or at all if there are fewer."""
    which = np.arange(min(count, len(pairs)))
    poses = lab.outputs(model, lambda x: model(x).poses, pairs.take(which))
    drawn, of_zeros = (draw_each(lab, model, x) for x in (poses, np.zeros_like(poses[:1])))
    change, lengths = ((drawn - of_zeros) ** 2).sum(axis=(2, 3, 4)), np.linalg.norm(poses, axis=2)
    present = pairs.labels[which] > 0
    return Look(pairs.parts(which), drawn, change, lengths, present, highest(lengths, 2))


def draw_each(lab, model, poses):
    """What the decoder draws of each capsule of poses (n, J, D) alone: (n, J, C, H, W)."""
    there, (n, classes, _) = tensor_for(model, poses), poses.shape
    with no_grad():
        keeps = [lab.device.put(np.full(n, k)) for k in range(classes)]
        return np.stack([model.reconstruct(there, keep).numpy() for keep in keeps], axis=1)


def redrawn(view):
    """How well the digits of a `Look` are redrawn, and whether absent ones are, as shares.

    fit: of the two digits (the sum of their squared brightness) what is drawn, each of its own
    capsule. absent: how much capsules change that are neither of the digits nor the answer, beside
    those of the digits.
    """
    missing = view.drawn[view.present].reshape(view.digits.shape) - view.digits
    absent = ~view.present & ~view.answered
    return {
        "fit": float(1 - (missing**2).sum() / (view.digits**2).sum()),
        "absent": float(view.change[absent].mean() / view.change[view.present].mean()),
    }


def table(results):
    header = ["%", "digits found", "pairs missed", "source", "exactly two", "redrawn"]
    rows = [[*header, "absent drawn", "boxes overlap", "pictures", "parameters", "seconds"]]
    for part, seeds in results.items():
        row = [part, *(percent([f[name] for f in seeds]) for name in ("digits", "error"))]
        row += [f"{SOURCE[part]}", percent([f["sure"] for f in seeds])]
        for name in ("fit", "absent"):
            row.append(percent([f[name] for f in seeds]) if name in seeds[0] else "–")
        row += [percent([f["boxes"] for f in seeds]), f"{seeds[0]['pictures']:,}"]
        rows.append([*row, *cost_cells(seeds)])
    return rows


def headline(results):
    rows = []
    for part, seeds in results.items():
        error = percent([f["error"] for f in seeds])
        what = part.replace("-", ", r = ") + ": pairs of which a digit is missed"
        rows.append(line(what, f"{SOURCE[part]} %", f"{error} %", seeds))
    seeds = next(iter(results.values()))
    boxes = percent([f["boxes"] for f in seeds])  # of the same pairs for all networks
    what = "common share of the boxes round two digits' ink"
    return [*rows, line(what, f"{SOURCE_BOXES} %", f"{boxes} %", seeds)]


def draw(results, path, lab):
    """Draw what the capsules make of test pairs, and beside it the errors of all networks; the
    pairs alone, in their own pixels, go into a second file, for lesson 16."""
    figure = new_figure(12, 5.4)
    left, right = figure.subfigures(1, 2, width_ratios=(2.5, 1))
    left.suptitle("Two digits pulled apart: each is redrawn from its own capsule", color=INK)
    axes, view = left.subplots(4, SHOWN), first_pairs(lab)
    pairs = [Look(*(field[k] for field in view)) for k in range(len(view.digits))]
    rows = [_rows(one) for one in pairs]
    for column, one, shown in zip(axes.T, pairs, rows, strict=True):
        _draw_pair(column, one, shown)
    names = ("the picture", "its digits", "redrawn", "an absent one")
    for panel, name in zip(axes[:, 0], names, strict=True):
        panel.set_ylabel(name, color=INK)
    _draw_errors(right.subplots(), results)
    lab.save(figure, path)
    grid = np.hstack([np.vstack(shown) for shown in rows])
    lab.save_pixels(grid.transpose(2, 0, 1), path.with_stem(f"{path.stem}-pairs"))


def first_pairs(lab):
    """A `Look` of the network `capsules-3` of seed 0 at the first test pairs."""
    settings = parts(lab.quick)["capsules-3"] | {"seed": 0}
    folder = lab.train("capsules-3", _learned(lab, settings, 0), settings)
    model = lab.model(folder)
    return look(lab, model, _test_pairs(lab, settings["data"], 0), SHOWN)


def _absent(one):
    """The longest of the capsules that are neither in a pair nor its answer."""
    return np.where(one.present | one.answered, -1, one.lengths).argmax()


def _rows(one):
    """A pair, its digits, both redrawn, and an absent one (H, W, 3), in the colours they have."""
    both = overlaid(one.digits), overlaid(one.drawn[one.present])
    grey = one.digits.max(axis=0)[0], one.drawn[_absent(one), 0]
    pair, absent = (np.repeat(row[..., None], 3, axis=2) for row in grey)
    return pair, *both, absent


def _draw_pair(axes, one, rows):
    """A column: what `_rows` gives, with the classes that are there, answered, and absent."""
    for panel, row in zip(axes, rows, strict=True):
        panel.imshow(row)
        panel.set(xticks=[], yticks=[])
    below = {"ha": "center", "va": "top", "transform": axes[1].transAxes}
    labels = np.flatnonzero(one.present)
    for place, label, colour in zip((0.35, 0.65), labels, MEMBERS, strict=False):
        axes[1].text(place, -0.04, label, color=colour, fontweight="bold", **below)
    said = " + ".join(map(str, np.flatnonzero(one.answered)))
    axes[2].set_xlabel(said + ("" if (one.present == one.answered).all() else " ✗"), color=INK)
    axes[3].set_xlabel(f"not there: {_absent(one)}", color=INK, fontsize=8)


def _draw_errors(axes, results):
    """Bars of the mean error with a dot for each seed, beside the source's figures."""
    for k, (part, seeds) in enumerate(results.items()):
        errors = [100 * f["error"] for f in seeds]
        ours = f"ours, each seed ({seeds[0]['pictures']:,} pictures)"
        axes.bar(k, np.mean(errors), 0.6, color=BLUE, alpha=0.5)
        axes.plot([k] * len(errors), errors, "o", color=INK, label="" if k else ours)
        source = "Sabour et al. 2017 (60,000,000)"
        axes.plot(k, SOURCE[part], "D", color=ORANGE, markersize=8, label="" if k else source)
    axes.set_xticks(range(len(results)), [part.replace("-", "\nr = ") for part in results])
    axes.set_ylim(0, 1.25 * axes.get_ylim()[1])
    axes.set(title="Pairs that are not recognised", ylabel="% of the test pairs")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
