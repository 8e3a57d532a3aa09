"""Build the web page: stage the lessons as Sphinx sources and replace the folder `_site`."""

import re
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from lessons.machinery.page import LESSONS, find_pages
from lessons.machinery.web import reference
from minicaps.explore import playground
from minicaps.explore.explorer import explorer_of

SITE = LESSONS.parent / "_site"
NEEDED = ("sphinx", "myst_parser", "furo", "mathjax")
SETTINGS = {
    "project": "minicaps lessons",
    "html_title": "minicaps lessons",
    "extensions": [
        "myst_parser",
        "sphinx.ext.mathjax",
        "lessons.machinery.web.columns",
        "lessons.machinery.web.prose",
    ],
    "myst_enable_extensions": ["dollarmath", "alert"],
    "myst_update_mathjax": False,  # static/maths.js holds all settings
    "mathjax_path": "mathjax/tex-svg.js",
    "mathjax_options": {"defer": "defer"},
    "html_theme": "furo",
    "html_static_path": [str(Path(__file__).parent / "static")],
    "html_css_files": ["lessons.css"],
    "html_js_files": [("maths.js", {"priority": 100}), ("stepper.js", {"defer": "defer"})],
    "html_copy_source": False,
    "smartquotes": False,  # code in docstrings is to be copied
    "html_use_index": False,
    "html_show_copyright": False,
    "html_show_search_summary": False,  # it would fetch pages, which file:// forbids
}


class SiteError(Exception):
    """The web page cannot be built. The message says what to do."""


def build(site=SITE):
    """Build the web page and replace the folder `site` with it. Raises SiteError on failure."""
    if missing := [name for name in NEEDED if not find_spec(name)]:
        names = ", ".join(missing)
        raise SiteError(f"{names} cannot be imported: pip install -e '.[web]' installs them")
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "source", Path(folder) / "site"
        stage(source)
        _run_sphinx(source, made)
        _copy_maths(made / "_static" / "mathjax")
        playground.write(made / "votes.html", lessons="")
        (made / "explorer.html").write_text(explorer_of("mnist", lessons=""), "utf-8")
        _replace(site, made)


def _replace(site, made):
    """Move the new folder `made` to `site`. An earlier build there is removed first, because a
    folder that is moved onto an existing one ends up inside it."""
    if site.is_symlink() or (site.exists() and not site.is_dir()):
        raise SiteError(f"{site} is not a folder that the web page could replace: move it away")
    try:
        if site.exists():
            shutil.rmtree(site)
        shutil.move(made, site)
    except OSError as error:
        raise SiteError(f"cannot write {site}: {error.strerror or error}") from error


def stage(folder):
    """Write the pages, figures and results into a new folder, in the form that Sphinx reads."""
    shutil.copytree(LESSONS / "figures", folder / "figures")
    shutil.copytree(LESSONS / "results", folder / "results")
    names = [path.stem for path in find_pages(LESSONS)]
    for name in names:
        text = caption_quotes(link_pages((LESSONS / f"{name}.md").read_text("utf-8")))
        (folder / f"{name}.md").write_text(text, "utf-8")
    references = sorted((LESSONS / "reference").glob("*.md"))
    for path in references:
        text = reference.expand(path.read_text("utf-8"))
        (folder / f"reference_{path.name}").write_text(text, "utf-8")
    contents = link_pages((LESSONS / "README.md").read_text("utf-8"))
    contents = re.sub(r"\(reference/(\w+)\.md\)", r"(reference_\1.md)", contents)
    contents = re.sub(r"^To write or change a lesson.*\n", "", contents, flags=re.MULTILINE)
    contents += _tree("Lessons", names)
    contents += _tree("Reference", [f"reference_{path.stem}" for path in references])
    (folder / "index.md").write_text(contents, "utf-8")


def caption_quotes(text):
    """Give each quote of the package its source as a caption.

    The caption replaces the empty line before the quote, so that Sphinx reports the lesson's line
    numbers, unless that line ends the HTML of a <summary>.
    """
    quote = r"^(?:(?<!</summary>\n)\n)?```python source=(\S+)$"
    return re.sub(quote, r"```{code-block} python\n:caption: \1", text, flags=re.MULTILINE)


def link_pages(text):
    """Let links to the manuals of the explorer and the playground lead to the pages themselves.

    They become HTML, because Sphinx knows only the pages that it has made.
    """
    for manual, page in (("explore", "explorer"), ("explore/playground", "votes")):
        link = rf"\[([^]]*)\]\(\.\./minicaps/{manual}/README\.md(#[\w-]*)?\)"
        text = re.sub(link, rf'<a href="{page}.html\2">\1</a>', text)
    return text


def _tree(caption, names):
    """A part of the menu, hidden on the page itself."""
    return "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *names, "```", ""])


def _run_sphinx(source, made):
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError

    try:
        app = Sphinx(
            source,
            confdir=None,
            outdir=made,
            doctreedir=source.parent / "doctrees",
            buildername="html",
            confoverrides=SETTINGS,
            status=None,
            warning=sys.stderr,
            warningiserror=True,
        )
        app.build()
    except SphinxError as error:
        raise SiteError(f"Sphinx cannot build the pages: {error}") from error
    if app.statuscode:
        raise SiteError("Sphinx warns (see above): fix the page that it names and build again")


def _copy_maths(target):
    """Copy MathJax, which renders the formulas, and its license from the installed package."""
    source = Path(find_spec("mathjax").origin).parent / "static" / "mathjax"
    target.mkdir(parents=True)
    shutil.copy(source / "es5" / "tex-svg.js", target)
    shutil.copy(source / "LICENSE", target)
