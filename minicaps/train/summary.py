"""Contents of summary.json: the results of a run and everything that affects them."""

import hashlib
import platform
import statistics

import numpy as np

import minicaps
from minicaps import ranks
from minicaps.backend import to_host
from minicaps.cli.measuring import describe_machine
from minicaps.data import NAMES, Split, baselines
from minicaps.data.dataset import count_classes, mean_recall
from minicaps.data.stored import on_host
from minicaps.errors import CheckpointError
from minicaps.models.rivals import fitted_rival
from minicaps.runs.building import load_model
from minicaps.runs.inference import classify
from minicaps.train import diagnosis
from minicaps.train.defaults import training_length

LINEAR_SHARE = 0.1  # of the training time, for the linear baseline
LINEAR_SECONDS = (1.0, 30.0)  # at least and at most


def results(trainer) -> dict:
    """Evaluate the best model once on the test set and return the results of the run."""
    best = load_model(path := trainer.folder / "best.npz", trainer.device)
    if best.config != trainer.model.config:
        raise CheckpointError(f"{path} contains a different network than this run trains")
    epoch, found, test = trainer.best["epoch"], {}, trainer.data.test
    if samples := len(test):
        trainer.display.test(trainer)
        loss, right, counts = trainer.evaluate(best, test, progress="test")
        found = {
            "test_accuracy": right / samples,
            "test_right": right,
            "test_samples": samples,
            "test_loss": loss,
        }
        if not test.multi:
            present = count_classes(test.labels, counts.shape[1])
            found["test_balanced_accuracy"] = mean_recall(counts[1], present)
    found |= {
        "best_epoch": epoch,
        "epochs": trainer.epoch,
        "stopped_early": trainer.epoch < trainer.optimization.epochs,
        "parameters": trainer.model.number_of_parameters(),
        "training_seconds": round(trainer.seconds, 3),
    }
    if trainer.validation:
        kinds = ("validation_accuracy", "validation_balanced_accuracy")
        row = trainer.history[epoch - 1]
        found |= {kind: row[kind] for kind in kinds if kind in row}
        if trainer.optimization.loss == "spread":
            scores = classify(best, trainer.validation)
            found["rival"] = fitted_rival(scores, to_host(trainer.validation.labels))
    if samples and not test.multi and trainer.options.data.name not in NAMES:
        found["baselines"] = ranks.by_root(_baselines, trainer)
        counts = count_classes(to_host(trainer.training.labels), len(trainer.data.class_names))
        usual = training_length(int(counts.sum()), len(counts))
        worse = diagnosis.no_better(found, trainer.options, counts, usual)
        trainer.warnings |= {"linear": worse} if worse else {}
    return found | {"warnings": list(trainer.warnings.values())}


def _baselines(trainer):
    """Evaluate two simple classifiers on the test images of custom data.

    They are trained on the same images as the network.
    """
    data, (least, most) = trainer.data, LINEAR_SECONDS
    training = Split(on_host(trainer.training.images), to_host(trainer.training.labels))
    majority, accuracy = baselines.majority(training.labels, data.test)
    return {
        "majority": {"class": data.class_names[majority], "accuracy": accuracy},
        "linear": baselines.linear(
            training,
            data.test,
            seed=trainer.options.run.seed,
            seconds=min(max(least, LINEAR_SHARE * trainer.seconds), most),
            stop=trainer.stop,
        ),
    }


def circumstances(trainer, command) -> dict:
    """Return all information that is needed to repeat the run or that affects the results."""
    machine, best = describe_machine(), trainer.folder / "best.npz"
    return {
        "device": trainer.device.name,
        "tf32": trainer.options.run.tf32 and trainer.device.kind == "gpu",
        "versions": {
            "minicaps": minicaps.__version__,
            "python": platform.python_version(),
            trainer.device.xp.__name__: trainer.device.xp.__version__,
            "numpy": np.__version__,
        },
        "machine": {
            "platform": platform.platform(),
            **{key: machine[key] for key in ("cpu", "cores", "blas")},
        },
        "ranks": {"count": ranks.count(), "threads": machine["threads"]},
        "seed": trainer.options.run.seed,
        "options": trainer.options.to_dict(),
        "notes": list(trainer.data.notes),
        "data_sha256": checksums(trainer),
        "best_sha256": hashlib.sha256(best.read_bytes()).hexdigest(),
        "command": command,
    }


def checksums(trainer) -> dict:
    """Return a checksum of the images and labels for each split."""
    return {name: part.sha256() for name, part in trainer.splits.items() if part}


def spread(summaries, command) -> dict:
    """Combine the summaries of runs with different seeds into a single summary."""
    accuracies = [summary["test_accuracy"] for summary in summaries]
    of_a_run = ("seed", "test_right", "test_samples", "test_accuracy")
    same = ("versions", "machine", "device", "tf32")
    return {
        "test_accuracy": {
            "mean": statistics.mean(accuracies),
            "standard_deviation": statistics.stdev(accuracies),
            "min": min(accuracies),
            "max": max(accuracies),
        },
        "runs": [{key: summary[key] for key in of_a_run} for summary in summaries],
        "command": command,
        **{key: summaries[-1][key] for key in same},
    }
