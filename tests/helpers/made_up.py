"""Invented results of experiments, with three seeds or one for each part."""

from minicaps.data.strokes import POSE_NAMES
from minicaps.experiments import adversarial, affine, attacks, dynamic, pairs, routing

COMMON = {"accuracy": 0.9, "parameters": 1234, "seconds": 90.0, "learned": 5000, "tested": 400}


def figures(name, part, right=0.9):
    """Return the results of a part of an experiment for a seed. right: the accuracy."""
    wrong = {"known": 1 - right, "novel": 1 - right, "ranges": [1 - right] * 6}
    kinds = dict.fromkeys(affine.KINDS, right)
    poses = dict.fromkeys((*POSE_NAMES, "slant", "beyond"), 0.5)
    of = {
        "ablation": {"rate": 0.003},
        "adversarial": {
            "validation": right,
            "clean": right,
            "against": dict.fromkeys(adversarial.ROWS, [right] * len(attacks.STRENGTHS)),
            "flat": dict.fromkeys(adversarial.GRADIENTS, 0.25),
        },
        "affine": {"held out": [right] * 3, "epoch": 2, "equal": kinds, "last": kinds},
        "dimensions": dict.fromkeys(("R²", "R² of 16", "R² of one"), poses)
        | ({"length": [right, 0.02]} if part in ("capsules", "masked", "pooling") else {}),
        "dynamic": {
            "kinds": dict.fromkeys(dynamic.KINDS, [substituted(right)] * len(dynamic.ITERATIONS))
        },
        "ladder": {"rate": 0.003}
        | dict.fromkeys(("moved", "far", "affine") if "affine" in part else ["mnist"], right),
        "overlap": {"digits": right, "error": 1 - right, "sure": right, "boxes": 0.7}
        | {"fit": 0.5, "absent": 0.1, "rate": 0.002},
        "pairs": {"single": right, "curve": [[right] * 3] * 2}
        | {layout: [right] * 3 for layout in pairs.LAYOUTS},
        "routing": {"entropy": 0.8}
        | (
            {"entropies": [0.5] * routing.LONG, "moves": [1 - right] * (routing.LONG - 1)}
            if part.endswith("-3") and not part.startswith(routing.EM)
            else {}
        ),
        "samples": {"pictures": 550 if part.endswith("100th") else 55_000},
        "squash": {"lengths": [0.1, 0.5, 0.9]},
        "viewpoint": {"curve": [right] * 2, "epochs": {"equal": 1, "best": 2}}
        | {"equal": wrong, "best": wrong},
    }
    return COMMON | {"accuracy": right} | of[name]


def substituted(right):
    """Return what `dynamic` finds after a number of iterations."""
    against = {"accuracy": right, "changed": 0.1, "lost": 3, "gained": 1}
    against = dict.fromkeys(("own", *dynamic.REPLACED), against)
    return {"entropy": 0.9, "spread": 0.2, "against": against}


def results(name, parts, seeds=3, right=0.9):
    """Return {part: results of each seed}, as `table` and `draw` expect."""
    return {part: [figures(name, part, right)] * seeds for part in parts}
