"""Options with which the experiments train, written out so that a new default changes no result."""

from typing import Any

TRAINING: dict[str, Any] = {
    "invert": "no",
    "validation": 0.1,
    "rotate": 0.0,
    "zoom": 0.0,
    "flip": "none",
    "brightness": 0.0,
    "balance": False,
    "epochs": 6,
    "batch_size": 64,
    "optimizer": "adam",
    "schedule": "exponential",
    "weight_decay": 0.0,
    "precision": "float32",
    "tf32": False,
}
SHIFT = {"mnist": 2}  # by data set; else 0
RATE: dict[tuple, float] = {  # by network and preset; else 0.001
    ("capsnet", "medium"): 0.003,
    ("capsnet", "small"): 0.003,
}
NETWORKS: dict[str, dict[str, Any]] = {
    "capsnet": {
        "preset": "small",
        "routing": "agreement",
        "squash": "paper",
        "shared": False,
        "reconstruction": 0.0005,
        "loss": "margin",
    },
    "capsule-cnn": {
        "routing": "agreement",
        "squash": "half",
        "batch_norm": False,
        "loss": "margin",
    },
    "pooling-cnn": {"pooling": "mean", "batch_norm": False, "loss": "margin"},
    "baseline-cnn": {"dropout": 0.5, "batch_norm": False, "loss": "cross-entropy"},
    "dense-cnn": {"preset": "small", "loss": "cross-entropy"},
    "matrix-capsnet": {
        "preset": "small",
        "iterations": 3,
        "gradient": "unrolled",
        "batch_norm": False,
        "loss": "spread",
    },
}


def written_out(given) -> dict:
    """Add all options of a training run that are not `given`, as this project's results used them.

    given: options as `minicaps.train.options.complete` takes them.
    """
    model = given.get("model", "capsnet")
    options = {"model": model, "data": "strokes"} | TRAINING | NETWORKS[model] | given
    chosen = {
        "shift": 0 if options.get("compose") else SHIFT.get(options["data"], 0),
        "learning_rate": RATE.get((model, options.get("preset")), 0.001),
    }
    if options["schedule"] == "exponential":
        chosen["decay"] = 0.7
    if options["loss"] == "margin":
        chosen["absent_weight"] = 0.5
    return options | chosen | given
