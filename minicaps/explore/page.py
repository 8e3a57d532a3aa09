"""Join texts into one HTML page that works from a file: nothing is loaded from anywhere."""

import html
import json
import re
from collections.abc import Iterable
from pathlib import Path

STATIC = Path(__file__).parent / "static"
# The browser itself refuses to load anything else; images are drawn or dropped.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
PAGE = """\
<!DOCTYPE html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
{styles}
</head>
<body>
{body}
{data}
{scripts}
</body>
</html>
"""


def static(name: str) -> str:
    """Return the text of a file in the folder `static`."""
    return (STATIC / name).read_text("utf-8")


def page(
    title: str,
    body: str,
    *,
    styles: Iterable[str] = (),
    scripts: Iterable[str] = (),
    data: object = None,
    lang: str = "en",
) -> str:
    """Return a self-contained HTML page.

    Parameters
    ----------
    title
        Title of the window, as plain text.
    body
        HTML of the page, without scripts.
    styles
        Texts of stylesheets, which follow `static/page.css`.
    scripts
        Texts of classic scripts, which run in this order after the page is parsed. Their top-level
        names are shared.
    data
        JSON-serializable value, which scripts read as
        `JSON.parse(document.getElementById("data").textContent)`. NaN and infinities, which are not
        JSON, raise ValueError.
    lang
        Language of the page.
    """
    sheets = [static("page.css"), *styles]
    return PAGE.format(
        lang=html.escape(lang),
        policy=POLICY,
        title=html.escape(title),
        styles="\n".join(f"<style>\n{_inside(sheet, 'style')}\n</style>" for sheet in sheets),
        body=body,
        data=f'<script type="application/json" id="data">{as_json(data)}</script>',
        scripts="\n".join(f"<script>\n{_inside(text, 'script')}\n</script>" for text in scripts),
    )


def as_json(data: object) -> str:
    """Return JSON that may stand inside a script element, whose end no `<` can announce."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _inside(text, tag):
    """Return the text of a script or stylesheet; ValueError if it would end its element early."""
    if found := re.search(rf"</{tag}|<!--", text, re.IGNORECASE):
        raise ValueError(f"{found[0]!r} inside a {tag} ends or hides it: write it in pieces")
    return text
