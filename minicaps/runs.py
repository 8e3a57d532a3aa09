"""Runs that have been trained: the model, and what is known of it, for the commands that use it."""

from dataclasses import dataclass
from pathlib import Path

from minicaps import checkpoint, data
from minicaps.backend import Device
from minicaps.nn import Module
from minicaps.training import load_model


@dataclass(frozen=True, eq=False)
class Run:
    """A trained model, ready to answer, and where it comes from.

    path: its checkpoint. options: those it was trained with. class_names: one for each class.
    background: that of the training pictures, "dark", "light" or "mixed"; None in older files.
    """

    path: Path
    model: Module
    device: Device
    options: dict
    class_names: tuple[str, ...]
    background: str | None

    @property
    def folder(self):
        return self.path.parent

    @property
    def input_shape(self):
        """(C, H, W) of the pictures that the model was trained on."""
        return tuple(self.model.config["input_shape"])


def open_run(path, device) -> Run:
    """Open a run folder (its best epoch), or one checkpoint of it, on `device`.

    Raises CheckpointError for a folder without `best.npz`, and for what is no checkpoint.
    """
    path = Path(path)
    if path.is_dir():
        path /= "best.npz"
        if not path.exists():
            raise checkpoint.CheckpointError(
                f"{path.parent} has no best.npz: no run, or its first epoch did not end"
            )
    model = load_model(path, device).eval()
    _, meta = checkpoint.load(path, needs=("model", "options", "preprocessing"))
    preprocessing = meta["preprocessing"]
    names = tuple(preprocessing["class_names"])
    return Run(path, model, device, meta["options"], names, preprocessing.get("background"))


def dataset(run: Run, source=None, folder=None) -> data.Dataset:
    """The data that a run was trained on, split as it was then; or another `source`, fitted to the
    network's pictures."""
    o = run.options
    other = source is not None and source != o["data"]
    return data.load(
        source or o["data"],
        folder=folder if folder or other else o["data_dir"],
        seed=o["seed"],
        size=run.input_shape[1:] if other else o.get("size"),
    )
