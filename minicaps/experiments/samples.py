"""samples: the loss of accuracy with a tenth, and with a hundredth, of the training images.

Popular accounts claim that capsules need fewer training images, but they give no numbers. Here, all
networks are trained for the same number of steps, so 55,000 digits are shown twice and 550 digits
are shown two hundred times, each time shifted by up to two pixels. If the number of epochs were the
same, the networks would hardly learn anything from a small training set. The counterpart,
`dense-cnn`, has the convolutions of the CapsNet and about as many parameters. The test digits are
evaluated with the network from the last epoch. No epoch is chosen on the 5,000 held-out digits,
because far fewer would be available with a small training set. The held-out digits were used to
decide against dropout in the counterpart: after two epochs on 6,000 digits, the accuracy was 95.9%
with dropout and 97.1% without it. Both networks use the default learning rate of the small CapsNet.
The counterpart is trained with the cross-entropy and the CapsNet with the margin loss, so a
difference between them is not due to the capsules alone.
"""

from dataclasses import dataclass

import numpy as np

from minicaps.data import Dataset
from minicaps.experiments import equal
from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import accuracy, cost_cells, line
from minicaps.plotting.canvas import BLUE, INK, ORANGE, new_figure

TITLE = "accuracy with 1/100, 1/10 and all of the training images"
SEEDS = 3
DATA = "mnist"
SHARES = (100, 10, 1)
PER_CENT = (0, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50)  # error ticks on the axis

KEY = equal.KEY | {
    "pictures": "number of different training images; all networks train for as many steps",
    "source": "popular accounts of capsules, which give no number",
}
TESTED = "the MNIST test digits, the same for every seed"


@dataclass(frozen=True, eq=False)
class Repeated(Dataset):
    """Data set that trains `share` times per epoch on the first of `share` equal parts."""

    share: int = 1

    def cut_validation(self, size, seed=0):
        rest, held_out = super().cut_validation(size, seed)
        return rest.take(np.arange(len(rest)) % (len(rest) // self.share)), held_out


def parts(quick):
    common = {
        "data": DATA,
        "validation": 500 if quick else 5000,
        "shift": 2,
        "epochs": 2,
        "schedule": "cosine",
        "learning_rate": 0.003,
    }
    return {
        _named(network, share): common | own
        for share in SHARES
        for network, own in equal.NETWORKS.items()
    }


def _named(network, share):
    return network if share == 1 else f"{network}-{share}th"


COMPARED = tuple(tuple(_named(network, share) for network in equal.NETWORKS) for share in SHARES)


def measure(lab, part, settings, seed):
    share = next(s for s in SHARES for network in equal.NETWORKS if _named(network, s) == part)
    digits = repeated(lab, seed, share)
    folder = lab.train(part, digits, settings | {"seed": seed})
    training, _ = digits.cut_validation(settings["validation"], seed)
    right = lab.right(lab.model(folder / "last.npz"), digits.test)
    return {
        "pictures": len(training) // share,
        "accuracy": float(right.mean()),
        **tested(right),
        **cost(read_summary(folder)),
    }


def repeated(lab, seed, share):
    whole = lab.data(DATA, seed)
    note = f"one in {share} training images is used, {share} times in each epoch"
    notes = (note,) if share > 1 else ()
    parts = (whole.train, whole.test, whole.class_names)
    return Repeated(whole.name, *parts, notes=notes, share=share)


def table(results):
    header = ["", "pictures", "accuracy, %", "source"]
    rows = [[*header, "parameters", "images learned"]]
    for part, seeds in results.items():
        count = f"{seeds[0]['pictures']:,}"
        rows.append([part, count, accuracy(seeds), "fewer needed, no figure", *cost_cells(seeds)])
    return rows


def headline(results):
    rows = []
    for part, seeds in results.items():
        network, count = part.partition("-")[0], seeds[0]["pictures"]
        what = f"{network}: accuracy when learned with {count:,} pictures"
        rows.append(line(what, "fewer needed, no figure", f"{accuracy(seeds)} %", seeds))
    return rows


def draw(results, path, lab):
    """Draw the smallest training set, and plot the error against the size of the training set."""
    figure = new_figure(10, 4.6)
    pictures, panel = figure.subplots(1, 2, width_ratios=(1, 1.2))
    settings = next(iter(parts(lab.quick).values()))
    digits, _ = repeated(lab, 0, SHARES[0]).cut_validation(settings["validation"], 0)
    count = len(digits) // SHARES[0]
    pictures.imshow(mosaic(digits.images[:count, 0]), cmap="gray_r", vmin=0, vmax=1)
    pictures.set(title=f"All {count:,} digits of the smallest training set")
    pictures.set(xticks=[], yticks=[])
    styles = zip(equal.NETWORKS, (BLUE, ORANGE), "os", ("right", "left"), strict=True)
    for network, colour, marker, end in styles:
        names = [_named(network, share) for share in SHARES]
        seeds = [results[name] for name in names if name in results]
        counts = [found[0]["pictures"] for found in seeds]
        errors = [[100 * (1 - f["accuracy"]) for f in found] for found in seeds]
        means = [np.mean(found) for found in errors]
        panel.plot(counts, means, color=colour, marker=marker, markersize=7, label=network)
        for x, found, mean in zip(counts, errors, means, strict=True):
            panel.plot([x] * len(found), found, "_", color=colour, markersize=12)
            beside = (-9 if end == "right" else 9, -4)
            place = {"xytext": beside, "textcoords": "offset points", "ha": end}
            panel.annotate(f"{mean:.1f}", (x, mean), color=colour, **place)
    panel.set(xlabel="training images", ylabel="test error, %", xscale="log")
    panel.set_yscale("symlog", linthresh=PER_CENT[1])
    counts = sorted({seeds[0]["pictures"] for seeds in results.values()})
    panel.set_xticks(counts, [f"{count:,}" for count in counts], color=INK)
    panel.minorticks_off()
    panel.set_title("The same number of steps with fewer images")
    panel.margins(0.12)
    limits = panel.get_ylim()
    panel.set_yticks(PER_CENT, map(str, PER_CENT))
    panel.set_ylim(limits)
    panel.grid(alpha=0.3)
    panel.legend(frameon=False)
    lab.save(figure, path)


def mosaic(images):
    """Arrange images (n, H, W) in a grid that is approximately square."""
    n, height, width = images.shape
    columns = int(np.ceil(np.sqrt(n)))
    rows = -(-n // columns)
    whole = np.zeros((rows * columns, height, width), images.dtype)
    whole[:n] = images
    whole = whole.reshape(rows, columns, height, width).transpose(0, 2, 1, 3)
    return whole.reshape(rows * height, columns * width)
