"""routing: what the iterations of every routing give, take, and lead to.

The small CapsNet on strokes, without a decoder. Couplings: their entropy, as a share of the largest
(1: a child divides itself equally; 0: it goes to one parent). What iterations lead to: the capsules
of networks that learned with three are routed thirty times. By accumulated logits, iterations make
couplings ever sharper; by recomputed ones they solve an equation (Jianlin Su 2018).
"""

import json

import numpy as np

from minicaps import ops
from minicaps.experiments.results import line, percent, spread
from minicaps.graph import no_grad
from minicaps.plotting.canvas import BLUE, INK, ORANGE, new_figure, save
from minicaps.routing import make_votes
from minicaps.runs import open_run
from minicaps.tensor import Tensor

TITLE = "accuracy, time and couplings against the number of routing iterations"
SEEDS = 3
ITERATIONS, LONG, PICTURES = (2, 3, 5, 10), 30, 50
ROUTINGS = {
    "accumulate": {"update": "accumulate"},
    "recompute": {"update": "recompute"},
    "spherical": {"update": "spherical"},
    "leaky": {"routing": "leaky"},
    "distance": {"routing": "distance"},
}
GRADIENTS = {
    "accumulate-3-stop": ROUTINGS["accumulate"] | {"iterations": 3, "gradient": "stop"},
    "recompute-10-stop": ROUTINGS["recompute"] | {"iterations": 10, "gradient": "stop"},
    "recompute-10-implicit": ROUTINGS["recompute"] | {"iterations": 10, "gradient": "implicit"},
    "spherical-10-stop": ROUTINGS["spherical"] | {"iterations": 10, "gradient": "stop"},
    "spherical-10-implicit": ROUTINGS["spherical"] | {"iterations": 10, "gradient": "implicit"},
}


def parts(quick):
    common = {"data": "strokes", "model": "capsnet", "reconstruction": 0.0}
    common |= {"validation": 500, "epochs": 2} if quick else {"validation": 1000, "epochs": 6}
    wanted = {"one-iteration": {"iterations": 1}}
    for r in (3, 10) if quick else ITERATIONS:
        wanted |= {f"{name}-{r}": own | {"iterations": r} for name, own in ROUTINGS.items()}
    return {name: common | own for name, own in (wanted | GRADIENTS).items()}


def measure(lab, part, settings, seed):
    options = settings | {"seed": seed}
    digits = lab.data(options["data"], seed)
    folder = lab.train(part, digits, options)
    summary = json.loads((folder / "summary.json").read_text())
    model = open_run(folder, lab.device).model
    asked = digits.test.take(slice(PICTURES))
    figures = {
        "accuracy": summary["test_accuracy"],
        "seconds": summary["training_seconds"],
        "entropy": entropy(lab.outputs(lambda x: model(x).couplings, asked)),
    }
    if part.endswith("-3"):
        figures |= iterated(model, Tensor(lab.device.put(asked.images)))
    return figures


def entropy(couplings):
    """Mean entropy of couplings (B, I, J), each row of which sums to 1, by the largest, ln J."""
    c = np.maximum(couplings, np.finfo(couplings.dtype).tiny)
    return float(-(c * np.log(c)).sum(axis=2).mean() / np.log(c.shape[2]))


def iterated(model, images):
    """Route what a CapsNet makes of images, `LONG` times: after every iteration the entropy of the
    couplings, and how far the class capsules moved, as the root mean square of |v − v before|."""
    x, history = images, []
    with no_grad():
        for convolution in model.convolutions:
            x = ops.relu(convolution(x))
        votes = make_votes(model.primary(x), model.classes.weight)
        model.classes.routing.route(votes, iterations=LONG, history=history)
    poses = np.array([routed.poses.numpy() for routed in history], dtype=np.float64)
    moves = np.sqrt((np.diff(poses, axis=0) ** 2).sum(axis=3).mean(axis=(1, 2)))
    return {
        "entropies": [entropy(routed.couplings.numpy()) for routed in history],
        "moves": [float(move) for move in moves],
    }


def table(results):
    rows = [["", "accuracy, %", "seconds", "entropy", f"entropy, r={LONG}", f"move, r={LONG}"]]
    for part, seeds in results.items():
        row = [part, percent([f["accuracy"] for f in seeds])]
        row.append(spread([f["seconds"] for f in seeds], ".0f"))
        row.append(spread([f["entropy"] for f in seeds], ".3f"))
        long = "moves" in seeds[0]
        row.append(spread([f["entropies"][-1] for f in seeds], ".3f") if long else "–")
        row.append(f"{np.mean([f['moves'][-1] for f in seeds]):.0e}" if long else "–")
        rows.append(row)
    return rows


def headline(results):
    rows = []
    for part in ("one-iteration", "accumulate-3", "recompute-3", "recompute-10-implicit"):
        if seeds := results.get(part):
            right = percent([f["accuracy"] for f in seeds])
            rows.append(line(f"{part}: accuracy on strokes", "–", f"{right} %", seeds))
            if "entropies" in seeds[0]:
                ends = spread([f["entropies"][-1] for f in seeds], ".2f")
                rows.append(line(f"{part}: entropy of couplings, r = {LONG}", "–", ends, seeds))
    return rows


def draw(results, path, lab):
    """Draw accuracy against iterations, and what more iterations lead to."""
    figure = new_figure(11, 3.8)
    error, sharp, move = figure.subplots(1, 3)
    styles = zip((INK, BLUE, ORANGE, "#009E73", "#999999"), "os^Dv", strict=True)
    for name, (colour, marker) in zip(ROUTINGS, styles, strict=False):
        style = {"color": colour, "marker": marker, "markersize": 4, "label": name}
        counts = [r for r in (1, *ITERATIONS) if _named(name, r) in results]
        errors = [
            100 * (1 - np.mean([f["accuracy"] for f in results[_named(name, r)]])) for r in counts
        ]
        error.plot(counts, errors, **style)
        seeds = results[f"{name}-3"]
        for panel, key, first in ((sharp, "entropies", 1), (move, "moves", 2)):
            mean = np.mean([f[key] for f in seeds], axis=0)
            panel.plot(np.arange(len(mean)) + first, mean, **(style | {"markevery": 4}))
    error.set(title="What is learned with them", ylabel="test error, %", xlabel="iterations")
    error.set(ylim=(0, None))
    sharp.set(title="Accumulated logits sharpen on and on", ylabel="entropy / ln J", ylim=(0, 1.02))
    move.set(title="Do capsules come to rest?", ylabel="move of the capsules", yscale="log")
    for panel in (sharp, move):
        panel.set(xlabel="iterations (learned with 3)")
    for panel in (error, sharp, move):
        panel.grid(alpha=0.3)
    move.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, path)


def _named(routing, iterations):
    return "one-iteration" if iterations == 1 else f"{routing}-{iterations}"
