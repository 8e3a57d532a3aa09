"""How custom data is to be read, and what was found."""

from dataclasses import dataclass, fields

from minicaps.data.dataset import Split

FRAMES = ("first", "all")
PARTS = ("train", "validation", "test")
PART_OF = {part: part for part in PARTS} | {"val": "validation", "valid": "validation"}
PART_OF |= {"training": "train", "testing": "test"}  # compare names in lower case


@dataclass(frozen=True)
class Reading:
    """Choices for data that can be read in more than one way.

    frames: "first" or "all" images of a file that contains several, or None to refuse such files.
    multi_label: whether labels of zeros and ones are multi-label data even if every image has a
    single 1. skip_bad: whether to leave out files that cannot be used, instead of refusing the
    data.
    """

    frames: str | None = None
    multi_label: bool = False
    skip_bad: bool = False

    def changed(self) -> list[str]:
        """Return the options of the commands that differ from their defaults."""
        changed = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        return [f"--{name.replace('_', '-')}" for name in changed]


@dataclass(frozen=True, eq=False)
class Found:
    """Contents of custom data.

    Attributes
    ----------
    parts : {"all": a split} for data that is not divided, or else the splits of those of the parts
        "train", "validation" and "test" that the data has; "train" is missing only if the data is
        read for a trained network
    class_names : names of the classes
    notes : sentences for the user about how the data was read
    skipped : pairs (file, reason) for the files that could not be used
    """

    parts: dict[str, Split]
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
