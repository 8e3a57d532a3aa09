"""Options of a run, in frozen dataclasses that follow `python -m minicaps.train --help`.

Checkpoints and config.json store the options as a flat dictionary. `minicaps.train.options` defines
their meaning, the allowed values, and the allowed combinations.
"""

from dataclasses import asdict, dataclass, fields

from minicaps import data
from minicaps.data import ink, own
from minicaps.data.augmentation import Augmentation


@dataclass(frozen=True)
class DataOptions:
    """Options for the data set, its split, and changes to the images."""

    name: str = "strokes"  # or a path
    data_dir: str | None = None
    size: list[int] | str | None = None  # [H, W], or "auto"; None: as the images are
    limit: int | None = None
    compose: int | None = None
    layout: str | None = None
    validation: float | int | None = None  # fraction or number of images; None: the default
    shift: int | None = None  # pixels; here and below, None: not decided, which means off
    rotate: float | None = None  # degrees
    zoom: float | None = None
    flip: str | None = None
    brightness: float | None = None
    balance: bool | None = None  # whether to draw all classes equally often
    frames: str | None = None  # "first" or "all"
    multi_label: bool = False
    skip_bad: bool = False
    invert: str | None = None  # None: a run of an older version

    @property
    def reading(self) -> own.Reading:
        """How custom data is read."""
        return own.Reading(self.frames, self.multi_label, self.skip_bad)

    @property
    def fill(self) -> float | None:
        """Value with which images are padded, or None for the color of their border."""
        return 0.0 if self.invert is None else None

    def load(self, seed, whole=None) -> data.Dataset:
        """Load the data; see `minicaps.data.load` for the arguments and the errors."""
        return data.load(
            self.name,
            folder=self.data_dir,
            limit=self.limit,
            seed=seed,
            size=self.size,
            compose=self.compose,
            layout=self.layout or "overlap",
            **asdict(self.reading),
            invert=ink.CHOICES[self.invert or "no"],
            older=self.invert is None,
            whole=whole,
        )

    def fetch(self):
        """Download the files of the data set that are missing."""
        if self.name in data.download.SOURCES:
            data.download.fetch(self.name, self.data_dir)

    @property
    def augmentation(self) -> dict:
        """Return the augmentation as keyword arguments of `minicaps.data.batches.batches`."""
        values = {field.name: getattr(self, field.name) for field in fields(Augmentation)}
        return {name: value for name, value in values.items() if value is not None}

    def split(self, dataset, seed):
        """Return the training set and the validation set.

        The validation set is None if no images are held out.
        """
        if self.validation == 0 and dataset.validation is None:
            return dataset.train, None
        return dataset.cut_validation(self.validation, seed)


@dataclass(frozen=True)
class ModelOptions:
    """Options for the network; None stands for the class default or an unsupported option."""

    name: str = "capsnet"
    preset: str | None = "small"
    routing: str | None = None
    update: str | None = None
    iterations: int | None = None
    gradient: str | None = None
    inverse_temperature: float | None = None
    squash: str | None = None
    primary_squash: str | None = None
    shared: bool | None = None
    pooling: str | None = None
    dropout: float | None = None
    batch_norm: bool | None = None
    reconstruction: float | None = 0.0005  # weight of the loss; 0: no decoder


@dataclass(frozen=True)
class OptimizationOptions:
    """Options for the loss, the optimizer, and the length of training.

    None stands for a choice that `minicaps.train.defaults` makes when the images are known.
    """

    loss: str | None = None
    absent_weight: float = 0.5  # of the margin loss
    epochs: int | None = 6
    patience: int | None = None  # epochs
    batch_size: int | None = 64
    optimizer: str = "adam"
    learning_rate: float | None = None
    schedule: str = "cosine"
    decay: float = 0.7  # factor per epoch
    warm_up: int | None = 0  # steps
    weight_decay: float = 0.0
    clip: float | None = None
    restarts: int | None = 0


@dataclass(frozen=True)
class RunOptions:
    """Options for seeds, devices, folders, and output."""

    seed: int = 0
    seeds: int | None = None
    start_from: str | None = None
    device: str = "auto"
    precision: str = "float32"
    tf32: bool = False
    out: str | None = None
    resume: str | None = None
    estimate: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Options:
    """All options of a run.

    In the flat dictionary, the `name` of a section is stored under the name of the section.
    """

    data: DataOptions = DataOptions()
    model: ModelOptions = ModelOptions()
    optimization: OptimizationOptions = OptimizationOptions()
    run: RunOptions = RunOptions()

    @classmethod
    def from_dict(cls, flat):
        """Create options from a flat dictionary, using default values for missing options."""
        sections = {}
        for section in fields(cls):
            keys = {field.name: _flat(section.name, field.name) for field in fields(section.type)}
            given = {name: flat[key] for name, key in keys.items() if key in flat}
            sections[section.name] = section.type(**given)
        return cls(**sections)

    def to_dict(self) -> dict:
        """Return all options as a flat dictionary."""
        sections = asdict(self).items()
        return {_flat(key, name): value for key, own in sections for name, value in own.items()}

    def replace(self, **changes) -> "Options":
        """Return a copy with the given changes, which use the keys of the flat dictionary."""
        return Options.from_dict(self.to_dict() | changes)


def options_of(meta) -> dict:
    """Return the flat options in the metadata of a checkpoint.

    Older runs have no option `multi_label`: they took all labels of zeros and ones as multi-label.
    """
    multi = bool((meta.get("preprocessing") or {}).get("multi"))
    return {"multi_label": multi and not meta["options"].get("compose"), **meta["options"]}


def _flat(section, name):
    return section if name == "name" else name
