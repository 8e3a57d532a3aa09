"""The options of `python -m minicaps.train`: their defaults, their checks, their help."""

import argparse
from datetime import datetime

from minicaps import data, models, optim
from minicaps.ops.capsule import SQUASHES
from minicaps.routing.agreement import GRADIENTS, UPDATES

DEFAULTS = {
    "data": "strokes",
    "data_dir": None,
    "limit": None,
    "validation": 0.1,
    "shift": None,
    "model": "capsnet",
    "preset": "small",
    "iterations": 3,
    "update": "accumulate",
    "gradient": "unrolled",
    "squash": "paper",
    "reconstruction": 0.0005,
    "epochs": 6,
    "batch_size": 64,
    "optimizer": "adam",
    "learning_rate": None,
    "schedule": "exponential",
    "decay": 0.7,
    "weight_decay": 0.0,
    "clip": None,
    "seed": 0,
    "device": "auto",
    "precision": "float32",
    "out": None,
    "resume": None,
    "quiet": False,
}
DEFAULT_SHIFT = {"mnist": 2}  # pixels; other data sets 0
DEFAULT_LEARNING_RATE = {"paper": 0.001, "small": 0.003}  # by preset


def complete(given):
    """Add the defaults to the options that were given; refuse what does not go together."""
    options = {**DEFAULTS, **given}
    if options["shift"] is None:
        options["shift"] = DEFAULT_SHIFT.get(options["data"], 0)
    if options["learning_rate"] is None:
        options["learning_rate"] = DEFAULT_LEARNING_RATE.get(options["preset"], 0.001)
    if "decay" in given and options["schedule"] != "exponential":
        raise ValueError(f"--decay belongs to --schedule exponential, not {options['schedule']}")
    if options["iterations"] == 1 and {"update", "gradient"} & given.keys():
        raise ValueError(
            "with --iterations 1 nothing is updated: leave --update and --gradient out"
        )
    if options["data"] == "strokes" and options["data_dir"]:
        raise ValueError("strokes are drawn, not read: leave --data-dir out")
    if options["out"] is None:
        moment = datetime.now().strftime("%Y%m%d-%H%M%S")
        options["out"] = f"runs/{options['data']}-{options['preset']}-{moment}"
    return options


def _number(kind, low, high=None, *, open_low=False):
    """Return an argparse type: a number of `kind` from `low` (or above it) to `high`."""
    what = "a whole number" if kind is int else "a number"
    span = f"above {low}" if open_low else f"of at least {low}"
    span += "" if high is None else f" and at most {high}"

    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        inside = value is not None and (value > low if open_low else value >= low)
        if not inside or value == float("inf") or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"must be {what} {span}, not {text!r}")
        return value

    return convert


def _share_or_count(text):
    """A fraction such as 0.1, a number of samples such as 5000, or 0 for none."""
    try:
        value = float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        value = -1
    if value < 0 or (isinstance(value, float) and not 0 <= value < 1):
        raise argparse.ArgumentTypeError(
            f"must be a fraction below 1 such as 0.1, a number of pictures, or 0, not {text!r}"
        )
    return value


_COUNT = _number(int, 1)
_WHOLE = _number(int, 0)
_POSITIVE = _number(float, 0, open_low=True)
_NOT_NEGATIVE = _number(float, 0)


def make_parser():
    """Build the parser; options that are not given stay out of the result."""
    parser = argparse.ArgumentParser(
        prog="python -m minicaps.train",
        description="Train a capsule network, measure it once on the test data, and write all"
        " results into a run folder. Without options: the small CapsNet on drawn digits, in about"
        " a minute.",
        epilog="Example: python -m minicaps.train --data mnist --preset small --epochs 6",
        usage="%(prog)s [options]",
        argument_default=argparse.SUPPRESS,
    )
    _data_options(parser.add_argument_group("data"))
    _model_options(parser.add_argument_group("model"))
    _optimisation_options(parser.add_argument_group("optimisation"))
    _run_options(parser.add_argument_group("run"))
    return parser


def _add(group, name, text, default=None, **keywords):
    """Add --name with its default in the help."""
    default = DEFAULTS[name] if default is None else default
    text += "" if default is None else f" (default: {default})"
    if "choices" in keywords:
        keywords["metavar"] = name.upper()
        text = f"{', '.join(keywords['choices'])}: {text}"
    group.add_argument("--" + name.replace("_", "-"), help=text, **keywords)


def _data_options(group):
    _add(group, "data", "data set", choices=data.NAMES)
    _add(group, "data_dir", "folder searched first for the data files", metavar="FOLDER")
    _add(group, "limit", "use only the first N training pictures", metavar="N", type=_COUNT)
    text = "training pictures kept for choosing the best epoch: a fraction, a number, or 0"
    _add(group, "validation", text, metavar="PART", type=_share_or_count)
    text = "shift training pictures by up to N pixels"
    _add(group, "shift", text, "2 for mnist, else 0", metavar="N", type=_WHOLE)


def _model_options(group):
    _add(group, "model", "network", choices=list(models.MODELS))
    _add(group, "preset", "its size", choices=list(models.CAPSNET_PRESETS))
    _add(group, "iterations", "routing iterations", metavar="R", type=_COUNT)
    _add(group, "update", "how agreement changes the logits", choices=UPDATES)
    _add(group, "gradient", "through all routing iterations, or not", choices=GRADIENTS)
    _add(group, "squash", "squash function", choices=[*SQUASHES, "none"])
    text = "weight of the reconstruction loss; 0 trains without a decoder"
    _add(group, "reconstruction", text, metavar="WEIGHT", type=_NOT_NEGATIVE)


def _optimisation_options(group):
    _add(group, "epochs", "passes over the training pictures", metavar="N", type=_COUNT)
    _add(group, "batch_size", "pictures in a step", metavar="N", type=_COUNT)
    _add(group, "optimizer", "update rule", choices=["adam", "sgd"])
    rates = ", ".join(f"{rate:g} for {name}" for name, rate in DEFAULT_LEARNING_RATE.items())
    _add(group, "learning_rate", "step size at the start", rates, metavar="RATE", type=_POSITIVE)
    _add(group, "schedule", "how the step size changes", choices=list(optim.SCHEDULES))
    text = "factor of the step size in each epoch of an exponential schedule"
    _add(group, "decay", text, metavar="FACTOR", type=_number(float, 0, 1, open_low=True))
    _add(group, "weight_decay", "decoupled weight decay", metavar="RATE", type=_NOT_NEGATIVE)
    _add(group, "clip", "limit of the gradient norm", metavar="NORM", type=_POSITIVE)


def _run_options(group):
    text = "of initial values, drawn data, order and shifts"
    _add(group, "seed", text, metavar="N", type=_WHOLE)
    _add(group, "device", "where to compute", choices=["auto", "cpu", "gpu"])
    _add(group, "precision", "of all numbers", choices=["float32", "float64"])
    _add(group, "out", "run folder", "runs/DATA-PRESET-TIME", metavar="FOLDER")
    text = "go on with that run; only --epochs, --device, --data-dir, --quiet may go with it"
    _add(group, "resume", text, metavar="FOLDER")
    group.add_argument("--quiet", action="store_true", help="print the result only")
