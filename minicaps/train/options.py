"""Options of `python -m minicaps.train`: help texts and checks.

The defaults are given where the options are declared, in `minicaps.runs.configuration`.
"""

import argparse
from dataclasses import asdict, fields
from datetime import datetime
from functools import partial
from pathlib import Path

from minicaps import data, models, optim
from minicaps.cli.command import number
from minicaps.data.arguments import AUGMENTATION, data_source, parse_size
from minicaps.data.augmentation import Augmentation
from minicaps.data.compose import LAYOUTS
from minicaps.data.dataset import VALIDATION_SHARE
from minicaps.data.ink import CHOICES
from minicaps.data.own import FRAMES, from_memory
from minicaps.data.own.files import name_of
from minicaps.errors import CheckpointError, counted
from minicaps.models.cnn import POOLINGS
from minicaps.models.losses import LOSSES, usual_loss
from minicaps.ops.capsule import SQUASHES
from minicaps.routing import GRADIENTS, ROUTINGS, UPDATES
from minicaps.runs.configuration import ModelOptions, Options

DEFAULTS = Options().to_dict()
CHANGEABLE = {"resume", "epochs", "patience", "device", "data_dir", "quiet"}  # with --resume
YES_OR_NO = {"balance"}  # options that are True, False, or None if undecided
PRESETS = tuple(models.CAPSNET_PRESETS)
NO_AUGMENTATION = asdict(Augmentation())
DEFAULT_SHIFT = {"mnist": 2}  # pixels; 0 for other data sets
DEFAULT_LEARNING_RATE = {  # by model and preset; else 0.001
    ("capsnet", "medium"): 0.003,
    ("capsnet", "small"): 0.003,
}
RESTARTS = 2  # for custom data, unless the learning rate is given
# Options that `minicaps.train.defaults` chooses for custom data
BY_THE_DATA = {"batch_size", "epochs", "warm_up", "shift", "rotate", "zoom", "balance"}

# Option of the network -> argument of its class, which has the option only if it has the argument
OF_THE_MODEL = {"reconstruction": "decoder"} | {
    field.name: field.name
    for field in fields(ModelOptions)
    if field.name not in ("name", "reconstruction")
}


def complete(given) -> Options:
    """Fill in defaults for missing options; raise ValueError if options are incompatible."""
    flat = {**DEFAULTS, **({"schedule": "exponential"} if "decay" in given else {}), **given}
    name = flat["model"]
    flat |= _options_of_the_model(name, given)
    defaults = NO_AUGMENTATION | {
        # Custom data may bring its own validation set
        "validation": VALIDATION_SHARE if flat["data"] in data.NAMES else None,
        "layout": "overlap" if flat["compose"] else None,
        "shift": 0 if flat["compose"] else DEFAULT_SHIFT.get(flat["data"], 0),
        "learning_rate": DEFAULT_LEARNING_RATE.get((name, flat["preset"]), 0.001),
        "invert": "no" if flat["data"] in data.NAMES else "auto",
        "loss": usual_loss(name),
        "out": _new_folder(flat),
    }
    if flat["data"] not in data.NAMES:
        flat["restarts"] = given.get("restarts", 0 if "learning_rate" in given else RESTARTS)
        flat["size"] = flat["size"] or "auto"
        left_open = BY_THE_DATA - given.keys()
        flat |= dict.fromkeys(left_open)
        defaults = {key: value for key, value in defaults.items() if key not in left_open}
    flat |= {key: value for key, value in defaults.items() if flat[key] is None}
    options = Options.from_dict(flat)
    _check(options, given)
    check_patience(options.optimization)
    return options


def _check(options, given):
    """Raise ValueError if options are incompatible with each other."""
    source, loss, run = options.data, options.optimization.loss, options.run
    schedule = options.optimization.schedule
    if "decay" in given and schedule != "exponential":
        raise ValueError(f"--decay applies to --schedule exponential only, not {schedule}")
    if "absent_weight" in given and loss != "margin":
        raise ValueError(f"--absent-weight applies to --loss margin only, not {loss}")
    if source.layout and not source.compose:
        raise ValueError("--layout places the images that --compose combines: give both")
    network, preset = models.MODELS[options.model.name], options.model.preset
    if preset and preset not in network.presets:
        known = ", ".join(network.presets)
        raise ValueError(f"{options.model.name} has no preset {preset}: choose {known}")
    if network.logits and loss == "spread":
        raise ValueError(
            "the spread loss needs scores from 0 to 1, but those of"
            f" {options.model.name} are logits: choose --loss cross-entropy or margin"
        )
    if source.data_dir and source.name == "strokes":
        raise ValueError("strokes are drawn, not read: leave --data-dir out")
    if source.data_dir and source.name not in data.NAMES:
        raise ValueError(f"{source.name} is read from its own path: leave --data-dir out")
    if Path(source.name) in Path(run.out).absolute().parents:
        raise ValueError(f"the run folder {run.out} must not be in the data: choose another --out")
    if run.tf32 and run.precision != "float32":
        raise ValueError(f"--tf32 applies to products of float32, not of {run.precision}")


def check_changeable(given, repeated):
    """Raise ValueError for options that cannot be combined with --resume.

    repeated: whether the run used --seeds.
    """
    if fixed := sorted(given.keys() - CHANGEABLE - ({"seeds"} if repeated else set())):
        names = ", ".join(map(_flag, fixed))
        raise ValueError(f"{names} cannot change when a run is resumed: start a new run")


def resumed(path, saved, given) -> Options:
    """Combine the saved options of a run with the given options, which take precedence.

    Raises CheckpointError if the command line would not accept a saved value.
    """
    folder = str(path.parent)
    if saved.get("data") == from_memory.NAME:
        raise CheckpointError(
            f"{folder} was trained on arrays in memory, which are not stored: it cannot be"
            " resumed; train again, or start from it with start_from"
        )
    if saved.get("data", "strokes") not in data.NAMES and not Path(saved["data"]).exists():
        raise CheckpointError(
            f"{saved['data']}, on which {folder} was trained, no longer exists: restore it"
        )
    flat = {**DEFAULTS, **_checked(path, saved), **given, "resume": folder, "out": folder}
    flat["quiet"] = given.get("quiet", False)
    flat["loss"] = flat["loss"] or usual_loss(flat["model"])  # older runs did not save it
    options = Options.from_dict(flat)
    check_patience(options.optimization)
    return options


def _checked(path, saved):
    """Use the parser to validate saved options as if they had been given on the command line."""

    def refuse(message):
        raise CheckpointError(f"{path} does not fit this version of minicaps: {message}")

    return saved | parsed(saved, refuse)


def parsed(values, refuse) -> dict:
    """Parse options as if they had been given on the command line.

    refuse: function that is called with a message about an invalid option and must raise an error.
    """
    parser, line = make_parser(), []
    parser.error = refuse
    for name, value in values.items():
        if value is False and name in YES_OR_NO:
            line.append(f"{_flag(name)}=no")
        elif value is not None and value is not False:
            text = "x".join(map(str, value)) if isinstance(value, list) else value
            line.append(_flag(name) if value is True else f"{_flag(name)}={text}")
    return vars(parser.parse_args(line))


def check_patience(optimization):
    """Raise ValueError if the patience exceeds the number of epochs, once that is known."""
    patience, epochs = optimization.patience, optimization.epochs
    if patience and epochs and patience >= epochs:
        raise ValueError(
            f"--patience {patience} has no effect in {counted(epochs, 'epoch')}: lower it, or"
            " give more --epochs"
        )


def _options_of_the_model(name, given):
    """Return the given or default value of each option in OF_THE_MODEL.

    The value is None if the model does not support the option.
    """
    own, chosen = models.options_of(name), dict.fromkeys(OF_THE_MODEL)
    for option, argument in OF_THE_MODEL.items():
        if argument in own:
            default = own[argument] if DEFAULTS[option] is None else DEFAULTS[option]
            if option == "reconstruction" and not own[argument]:
                default = None  # a decoder that is built only if asked for
            chosen[option] = given.get(option, default)
        elif option in given:
            flag = _flag(option)
            raise ValueError(f"{name} has no {flag}: leave it out, or choose another --model")
    return chosen


def _new_folder(flat):
    moment = datetime.now().strftime("%Y%m%d-%H%M%S")
    name = name_of(flat["data"])
    names = [name, *(flat[key] for key in ("model", "preset") if flat[key])]
    return f"runs/{'-'.join([*names, moment])}"


def _flag(name):
    return "--" + name.replace("_", "-")


def _share_or_count(text):
    """Parse a fraction such as 0.1, a number of samples such as 5000, or 0 for no samples."""
    try:
        value = float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        value = -1
    if value < 0 or (isinstance(value, float) and not 0 <= value < 1):
        raise argparse.ArgumentTypeError(
            f"must be a fraction below 1 such as 0.1, a number of images, or 0, not {text!r}"
        )
    return value


def _yes_or_no(text):
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"must be yes or no, not {text!r}")
    return text == "yes"


_COUNT = number(int, 1)
_WHOLE = number(int, 0)
_POSITIVE = number(float, 0, ends="()")
_NOT_NEGATIVE = number(float, 0)


def make_parser():
    """Build a parser that returns only the options given on the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m minicaps.train",
        description="Train a capsule network, test it once, and write a run folder. Without"
        " options, train the small CapsNet on drawn digits in about a minute. Defaults are"
        " in brackets. For custom data, size, batch size, epochs, schedule, warm-up, restarts,"
        " balance and augmentation depend on the images.",
        epilog="Example: python -m minicaps.train --data mnist --preset small --epochs 6",
        usage="%(prog)s [options]",
        argument_default=argparse.SUPPRESS,
        add_help=False,
        formatter_class=partial(argparse.HelpFormatter, max_help_position=24),
    )
    _data_options(parser.add_argument_group("data"))
    _model_options(parser.add_argument_group("model (unsupported options are errors)"))
    _optimization_options(parser.add_argument_group("optimization"))
    _run_options(parser.add_argument_group("run"))
    return parser


def _add(group, name, text, default=None, **keywords):
    """Add the option --name and state its default in the help text."""
    default = DEFAULTS[name] if default is None else default
    text += "" if default is None else f" [{default}]"
    if "choices" in keywords:
        keywords.setdefault("metavar", name.upper())
        text = f"{', '.join(keywords['choices'])}{text if text[:2] == ' [' else ': ' + text}"
    group.add_argument(_flag(name), help=text, **keywords)


def _data_options(group):
    text = f"{', '.join(data.NAMES)} or a path"
    _add(group, "data", text, metavar="DATA", type=data_source)
    _add(group, "data_dir", "folder searched first for the data files", metavar="FOLDER")
    text = "fit images to N×N or H×W, padded with their border"
    _add(group, "size", text, metavar="N|HxW", type=parse_size)
    _add(group, "limit", "use only N training images", metavar="N", type=_COUNT)
    text = "combine N images of different classes into one"
    _add(group, "compose", text, metavar="N", type=number(int, 2))
    _add(group, "layout", "how they are placed", "overlap", choices=LAYOUTS)
    text = "fraction or number held out to choose the epoch"
    _add(group, "validation", text, VALIDATION_SHARE, metavar="PART", type=_share_or_count)
    for name, (text, keywords) in AUGMENTATION.items():
        default = "2 for mnist, else 0" if name == "shift" else NO_AUGMENTATION[name]
        _add(group, name, text, default, **keywords)
    text = "images to take from files that contain several"
    _add(group, "frames", text, choices=FRAMES)
    text = "zeros and ones are multi-label even if one-hot"
    group.add_argument("--multi-label", action="store_true", help=text)
    text = "leave out files that cannot be used, and list them"
    group.add_argument("--skip-bad", action="store_true", help=text)
    text = "swap light and dark"
    _add(group, "invert", text, "auto: dark drawings in custom data", choices=list(CHOICES))
    text = "draw all classes equally often"
    yes = {"nargs": "?", "const": True, "type": _yes_or_no}
    _add(group, "balance", text, metavar="yes|no", **yes)


def _model_options(group):
    _add(group, "model", "", choices=list(models.MODELS))
    _add(group, "preset", "network size", choices=PRESETS)
    _add(group, "routing", "routing method", choices=[*ROUTINGS, "learned"])
    _add(group, "update", "logit update", choices=UPDATES)
    _add(group, "iterations", "number of routing iterations", metavar="R", type=_COUNT)
    _add(group, "gradient", "gradient through iterations", choices=GRADIENTS)
    text = "how sharply children choose among parents"
    _add(group, "inverse_temperature", text, metavar="BETA", type=_POSITIVE)
    _add(group, "squash", "squash formula", choices=[*SQUASHES, "none"])
    text = "in PrimaryCaps"
    _add(group, "primary_squash", text, metavar="SQUASH", choices=[*SQUASHES, "none"])
    text = "let all positions share the capsnet's matrices"
    group.add_argument("--shared", action="store_true", help=text)
    _add(group, "pooling", "over all positions", choices=POOLINGS)
    text = "fraction of values set to 0 in training"
    _add(group, "dropout", text, metavar="SHARE", type=number(float, 0, 1))
    text = "normalize the channels after each convolution"
    group.add_argument("--batch-norm", action="store_true", help=text)
    text = "decoder's loss weight; 0 or dense-cnn: none"
    _add(group, "reconstruction", text, metavar="W", type=_NOT_NEGATIVE)


def _optimization_options(group):
    _add(group, "loss", "", "the model's", choices=LOSSES)
    text = "margin loss: weight of absent classes"
    _add(group, "absent_weight", text, metavar="W", type=_POSITIVE)
    _add(group, "epochs", "passes over the training images", metavar="N", type=_COUNT)
    text = "stop when validation has not improved for N epochs"
    _add(group, "patience", text, metavar="N", type=_COUNT)
    _add(group, "batch_size", "images per step", metavar="N", type=_COUNT)
    _add(group, "optimizer", "update rule", metavar="RULE", choices=["adam", "sgd"])
    rates = "0.001; capsnet medium, small: 0.003"
    _add(group, "learning_rate", "initial rate", rates, metavar="RATE", type=_POSITIVE)
    _add(group, "schedule", "", choices=list(optim.SCHEDULES))
    text = "exponential schedule: factor per epoch"
    _add(group, "decay", text, metavar="FACTOR", type=number(float, 0, 1, "(]"))
    text = "raise the rate linearly over the first N steps"
    _add(group, "warm_up", text, metavar="N", type=_WHOLE)
    text = "if nothing is learned, restart with a quarter of the rate"
    _add(group, "restarts", text, metavar="N", type=_WHOLE)
    _add(group, "weight_decay", "decoupled weight decay", metavar="RATE", type=_NOT_NEGATIVE)
    _add(group, "clip", "maximum norm of the gradient", metavar="NORM", type=_POSITIVE)


def _run_options(group):
    text = "seed of initial values, drawn data, order, augmentation"
    _add(group, "seed", text, metavar="N", type=_WHOLE)
    text = "train N runs, shared among ranks; report the spread"
    _add(group, "seeds", text, metavar="N", type=number(int, 2))
    text = "start from the best parameters of another run"
    _add(group, "start_from", text, metavar="FOLDER")
    _add(group, "device", "device to compute on", choices=["auto", "cpu", "gpu"])
    _add(group, "precision", "floating-point type", metavar="TYPE", choices=["float32", "float64"])
    text = "let a GPU round the factors of products to 11 bits"
    group.add_argument("--tf32", action="store_true", help=text)
    _add(group, "out", "run folder", "runs/DATA-MODEL-PRESET-TIME", metavar="FOLDER")
    text = "resume a run; only --epochs, --patience, --device,"
    _add(group, "resume", f"{text} --data-dir and --quiet can be changed", metavar="FOLDER")
    text = "print parameters, memory and time without training"
    group.add_argument("--estimate", action="store_true", help=text)
    group.add_argument("--quiet", action="store_true", help="print only the result")
    group.add_argument("-h", "--help", action="help", help="show this help and exit")
