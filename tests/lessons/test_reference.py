"""The reference: its examples give what they print, and no public package is missing."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import minicaps
from lessons.machinery.page import LESSONS
from lessons.machinery.web.reference import MARK, entries, expand, prose

PAGES = sorted((LESSONS / "reference").glob("*.md"))
MODULES = {name for path in PAGES for name in MARK.search(path.read_text("utf-8"))[1].split()}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_an_example_prints_what_its_page_says(path):
    command = [sys.executable, "-m", "lessons", "check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "```python" in path.read_text("utf-8")


def test_every_package_that_exports_names_has_a_page():
    found = [
        "minicaps",
        *(f"minicaps.{module.name}" for module in pkgutil.iter_modules(minicaps.__path__)),
    ]
    exporting = {name for name in found if hasattr(importlib.import_module(name), "__all__")}
    assert exporting - MODULES == {"minicaps.plotting"}  # serves the commands
    contents = (LESSONS / "README.md").read_text("utf-8")
    for path in PAGES:
        assert f"(reference/{path.name})" in contents


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_exported_name_has_an_entry_with_its_docstring(module):
    here, text = importlib.import_module(module), entries(module)
    for name in getattr(here, "__all__", []):
        value = getattr(here, name)
        if not hasattr(value, "__path__"):  # a package has a page
            assert f"## {name}\n" in text, name
            if callable(value):
                assert value.__doc__ and value.__doc__.split("\n")[0] in text


def test_a_docstring_becomes_markdown():
    docstring = """Do it.

    Parameters
    ----------
    x : array (n,)
        What is done,
        in two lines.
    **options
        More.

    Returns
    -------
    A `Split` and more.

    Raises
    ------
    ValueError
        If not.
    """
    assert prose(docstring) == (
        "Do it.\n\n**Parameters**\n\n- `x` (array (n,)): What is done, in two lines.\n"
        "- `**options`: More.\n\n**Returns**\n\nA `Split` and more.\n\n"
        "**Raises**\n\n- `ValueError`: If not.\n"
    )


def test_a_mark_is_replaced():
    text = expand("# Ops\n\n<!-- reference: minicaps.ops -->\n")
    assert "minicaps.ops.relu(x) -> Tensor" in text and "<!--" not in text
