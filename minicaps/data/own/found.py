"""How custom data is to be read, and what was found."""

from dataclasses import dataclass

from minicaps.data.dataset import Split


@dataclass(frozen=True)
class Reading:
    """Choices for data that can be read in more than one way.

    skip_bad: whether to leave out files that cannot be used, instead of refusing the data.
    """

    skip_bad: bool = False


@dataclass(frozen=True, eq=False)
class Found:
    """Contents of custom data.

    Attributes
    ----------
    parts : {"all": a split} for data that is not divided, or else the splits of the parts "train"
        (always present), "validation" and "test"
    class_names : names of the classes
    notes : sentences for the user about how the data was read
    skipped : pairs (file, reason) for the files that could not be used
    """

    parts: dict[str, Split]
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
