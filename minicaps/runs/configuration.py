"""The options of a run: one frozen record, with the sections of `python -m minicaps.train --help`.

Checkpoints and config.json hold it as a flat dictionary. What a value means, which are allowed, and
which go together: `minicaps.train.options`.
"""

from dataclasses import asdict, dataclass, fields

from minicaps import data


@dataclass(frozen=True)
class DataOptions:
    """The data, how it is split, and how its pictures are changed."""

    name: str = "strokes"  # or a path
    data_dir: str | None = None
    size: list[int] | None = None  # [H, W]
    limit: int | None = None
    compose: int | None = None
    layout: str | None = None
    validation: float | int = 0.1  # share, or number of pictures
    shift: int | None = None

    def load(self, seed) -> data.Dataset:
        """Load the data; seed: see `minicaps.data.load`, which says what it raises, too."""
        return data.load(
            self.name,
            folder=self.data_dir,
            limit=self.limit,
            seed=seed,
            size=self.size,
            compose=self.compose,
            layout=self.layout or "overlap",
        )

    def split(self, dataset, seed):
        """The training and the validation pictures of a data set; the latter None without."""
        if not self.validation:
            return dataset.train, None
        return dataset.cut_validation(self.validation, seed)


@dataclass(frozen=True)
class ModelOptions:
    """The network; None is what its class has as the default, or that it has no such option."""

    name: str = "capsnet"
    preset: str | None = "small"
    routing: str | None = None
    update: str | None = None
    iterations: int | None = None
    gradient: str | None = None
    inverse_temperature: float | None = None
    squash: str | None = None
    primary_squash: str | None = None
    dropout: float | None = None
    batch_norm: bool | None = None
    reconstruction: float | None = 0.0005  # weight of the loss; 0: no decoder


@dataclass(frozen=True)
class OptimizationOptions:
    """What is minimized, how, and for how long."""

    loss: str | None = None
    epochs: int = 6
    patience: int | None = None  # epochs
    batch_size: int = 64
    optimizer: str = "adam"
    learning_rate: float | None = None
    schedule: str = "exponential"
    decay: float = 0.7  # factor per epoch
    weight_decay: float = 0.0
    clip: float | None = None


@dataclass(frozen=True)
class RunOptions:
    """Seeds, devices and folders."""

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
    """All options of a run. Flat, the `name` of a section is called like the section."""

    data: DataOptions = DataOptions()
    model: ModelOptions = ModelOptions()
    optimization: OptimizationOptions = OptimizationOptions()
    run: RunOptions = RunOptions()

    @classmethod
    def from_dict(cls, flat):
        """Take options from a flat dictionary, defaults for those that it lacks."""
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
        """Return the options with `changes`, named as in the flat dictionary."""
        return Options.from_dict(self.to_dict() | changes)


def _flat(section, name):
    return section if name == "name" else name
