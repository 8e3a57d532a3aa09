"""The votes playground, a page on which votes are dragged and parents follow."""

from pathlib import Path

from minicaps.explore.page import page
from minicaps.explore.playground.presets import presets
from minicaps.storage import replacing

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("votes", "methods", "situation", "planes", "charts", "playground")


def playground_page(lessons: str | None = None) -> str:
    """Return the page as HTML.

    lessons: what comes before `09_kmeans.html` in links to the lessons; without it, there are none.
    """
    return page(
        "Votes playground",
        _static("playground.html"),
        styles=[_static("playground.css")],
        scripts=[_static(f"{name}.js") for name in SCRIPTS],
        data={"lessons": lessons, **presets()},
    )


def _static(name):
    return (STATIC / name).read_text("utf-8")


def write(path: str | Path, lessons: str | None = None) -> None:
    """Write the page to a file. Raises UserError if that is impossible."""
    with replacing(Path(path)) as file:
        file.write(playground_page(lessons).encode("utf-8"))
