"""routing: the benefit and the long-run effect of iterations in each kind of routing.

The small CapsNet is trained without a decoder on the data set `strokes`. The entropy of the
couplings is reported relative to its maximum: it is 1 if each child is divided equally among its
parents, and 0 if each child goes to one parent. To show the effect of many iterations, routing is
run for thirty iterations in networks that were trained with three. With accumulated logits, each
iteration makes the couplings sharper; with recomputed logits, the iterations solve a fixed-point
equation (Jianlin Su 2018).

EM routing (Hinton et al. 2018) requires activations in addition to poses, as well as learned costs;
the CapsNet has neither. It is therefore measured in the small network of matrix capsules, which is
ten times slower and gets a third of the images and half the epochs, which is too little: one and
three iterations have a mean error of 40% and 38%, two of 1%. So its rows say how fast these
networks learn at first, not which number of iterations is best, and the headline leaves them out.
"""

import numpy as np

from minicaps.experiments.lab import cost, read_summary, tested
from minicaps.experiments.results import cost_cells, error, line, spread
from minicaps.graph import no_grad
from minicaps.models.inputs import tensor_for
from minicaps.plotting.canvas import BLUE, GREEN, INK, PINK, SKY, new_figure
from minicaps.routing import keep_history, make_votes

TITLE = "accuracy and couplings against the number of routing iterations"
SEEDS = 3
ITERATIONS, LONG, PICTURES = (2, 3, 5, 10), 30, 50
ROUNDING = 1e-7  # of float32; a smaller move counts as none
EM = "matrix-em-"  # prefix of its parts
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

KEY = {
    "-3": "number in the name of a row: routing iterations, in training and testing",
    "one-iteration": "all couplings equal",
    "accumulate": "coupling logits: the votes' products with the capsule, summed over iterations",
    "recompute": "these products, from the last iteration only",
    "spherical": "products with the capsule's direction, from the last iteration only",
    "leaky": "as accumulate, but a child may also go to no capsule",
    "distance": "minus the votes' squared distances to the mean, from the last iteration only",
    "-stop": "trained as if the couplings were constant; other rows: through all iterations",
    "-implicit": "trained with the gradient of the equation that the iterations solve",
    EM: "EM routing, in another network, which has learned too few images to be compared",
    "entropy": "of the couplings: 1 if a child goes to all parents equally, 0 if it goes to one",
    f"r={LONG}": f"when a network trained with 3 iterations is routed with {LONG}",
    f"move, r={LONG}": "root mean square of the capsules' last moves (their lengths are below 1)",
}
TESTED = "digits, drawn anew for each seed"
COMPARED = tuple((part, "one-iteration") for part in ("accumulate-3", "recompute-3"))


def parts(quick):
    common = {"data": "strokes", "model": "capsnet", "reconstruction": 0.0}
    common |= {"validation": 500, "epochs": 1} if quick else {"validation": 1000, "epochs": 6}
    wanted = {"one-iteration": {"iterations": 1}}
    for r in (3, 10) if quick else ITERATIONS:
        wanted |= {f"{name}-{r}": own | {"iterations": r} for name, own in ROUTINGS.items()}
    if not quick:
        wanted |= GRADIENTS
    return {name: common | own for name, own in wanted.items()} | _em_parts(quick)


def _em_parts(quick):
    common = {"data": "strokes", "model": "matrix-capsnet", "batch_norm": True, "batch_size": 32}
    common |= {"learning_rate": 0.005, "limit": 1000 if quick else 3500}
    common |= {"validation": 200, "epochs": 1} if quick else {"validation": 500, "epochs": 3}
    return {f"{EM}{r}": common | {"iterations": r} for r in ((2,) if quick else (1, 2, 3))}


def measure(lab, part, settings, seed):
    options = settings | {"seed": seed}
    digits = lab.data(options["data"], seed, options.get("limit"))
    folder = lab.train(part, digits, options)
    summary = read_summary(folder)
    model = lab.model(folder)
    asked = digits.test.take(slice(PICTURES))
    figures = {
        "accuracy": summary["test_accuracy"],
        **tested(lab.right(model, digits.test)),
        **cost(summary),
        "entropy": entropy(lab.outputs(model, lambda x: model(x).couplings, asked)),
    }
    if part.endswith("-3") and not part.startswith(EM):
        figures |= iterated(model, tensor_for(model, asked.images))
    return figures


def entropy(couplings):
    """Compute the mean entropy of couplings (B, I, J), divided by the maximum entropy, ln J.

    The couplings of each child sum to 1.
    """
    c = np.maximum(couplings, np.finfo(couplings.dtype).tiny)
    return float(-(c * np.log(c)).sum(axis=2).mean() / np.log(c.shape[2]))


def iterated(model, images):
    """Route the votes of a CapsNet for `LONG` iterations.

    Returns the entropy of the couplings after each iteration, and the moves of the class capsules,
    which are the root mean square of |v − v before|.
    """
    with no_grad(), keep_history():
        votes = make_votes(model.primary_capsules(images), model.classes.weight)
        history = model.classes.routing.route(votes, iterations=LONG).history
    poses = np.array([routed.poses.numpy() for routed in history], dtype=np.float64)
    moves = np.sqrt((np.diff(poses, axis=0) ** 2).sum(axis=3).mean(axis=(1, 2)))
    return {
        "entropies": [entropy(routed.couplings.numpy()) for routed in history],
        "moves": [float(move) for move in moves],
    }


def table(results):
    measures = ["entropy", f"entropy, r={LONG}", f"move, r={LONG}"]
    rows = [["", "test error, %", "parameters", "images learned", *measures]]
    for part, seeds in results.items():
        row = [part, error(seeds), *cost_cells(seeds)]
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
            rows.append(line(f"{part}: test error on strokes", "–", f"{error(seeds)} %", seeds))
            if "entropies" in seeds[0]:
                what = f"{part}: entropy of couplings after 3 / {LONG} iterations (1: to all"
                what += " parents alike, 0: to one)"
                ends = (spread([f["entropies"][r - 1] for f in seeds], ".2f") for r in (3, LONG))
                rows.append(line(what, "–", " / ".join(ends), seeds))
    return rows


def draw(results, path, lab):
    """Plot the test error against the number of iterations, and the effect of many iterations."""
    figure = new_figure(11, 3.8)
    learned, sharp, move = figure.subplots(1, 3)
    styles = zip((BLUE, PINK, SKY, INK, "#999999"), "XsoDv", strict=True)
    for name, (colour, marker) in zip(ROUTINGS, styles, strict=False):
        style = {"color": colour, "marker": marker, "markersize": 4, "label": name}
        _draw_errors(learned, results, [_named(name, r) for r in (1, *ITERATIONS)], style)
        if seeds := results.get(f"{name}-3"):
            for panel, key, first in ((sharp, "entropies", 1), (move, "moves", 2)):
                mean = np.mean([f[key] for f in seeds], axis=0)
                panel.plot(np.arange(len(mean)) + first, mean, **(style | {"markevery": 4}))
    style = {"color": GREEN, "marker": "^", "linestyle": ":", "label": "EM, too few images"}
    _draw_errors(learned, results, [f"{EM}{r}" for r in (1, 2, 3)], style)
    learned.set(title="Error by number of iterations", ylabel="test error, %", xlabel="iterations")
    learned.set_yscale("symlog", linthresh=0.2)
    learned.set_yticks((ticks := (0, 0.1, 0.2, 0.5, 1, 2, 5, 10)), ticks)
    learned.set_ylim(0, None)
    sharp.set(
        title="Accumulated logits keep sharpening",
        ylabel="entropy of couplings (1: all equal)",
        ylim=(0, 1.02),
    )
    move.set(title="Do the capsules come to rest?", ylabel="move of the capsules")
    move.set_yscale("symlog", linthresh=ROUNDING)
    move.set_ylim(0, None)
    for panel in (sharp, move):
        panel.set(xlabel="iterations (trained with 3)")
    for panel in (learned, sharp, move):
        panel.grid(alpha=0.3)
    handles, labels = learned.get_legend_handles_labels()
    move.legend(handles, labels, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    lab.save(figure, path)


def _draw_errors(axes, results, parts, style):
    """Plot the mean test error of all measured parts against their number of iterations."""
    there = [part for part in parts if part in results]
    counts = [1 if part == "one-iteration" else int(part.rpartition("-")[2]) for part in there]
    means = [100 * np.mean([1 - f["accuracy"] for f in results[part]]) for part in there]
    axes.plot(counts, means, **style)


def _named(routing, iterations):
    return "one-iteration" if iterations == 1 else f"{routing}-{iterations}"
