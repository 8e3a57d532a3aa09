"""A Sphinx extension: what prose needs on the web page and has from GitHub, or cannot have there.

A box of Markdown, `> [!TIP]`, says what it is in bold: here that is its heading. And a formula is
a picture, beside which a browser may break the line: its full stop stays with it.
"""

import re

from docutils import nodes

OPENING, CLOSING = re.compile(r"[^\w\s]+$"), re.compile(r"^[^\w\s]+")


def setup(app):
    app.connect("doctree-read", head_boxes)
    app.connect("doctree-read", hold_marks)
    return {"parallel_read_safe": True}


def head_boxes(app, doctree):
    """Make the first words of a box, in bold, its heading in place of "Tip"."""
    for box in list(doctree.findall(nodes.tip)):
        words = box.next_node(nodes.strong)
        if words and box.astext().startswith(words.astext()):
            words.parent.remove(words)
            heading = nodes.title("", words.astext().rstrip("."))
            box.replace_self(nodes.admonition("", heading, *box.children, classes=["tip"]))


def hold_marks(app, doctree):
    """Hold the marks that touch a formula of the text to it, in a span that is not broken."""
    for formula in list(doctree.findall(nodes.math)):
        around = formula.parent
        place = around.index(formula)
        before, after = _take(around, place - 1, OPENING), _take(around, place + 1, CLOSING)
        if before or after:
            around[place] = nodes.inline("", "", *before, formula, *after, classes=["held"])


def _take(around, place, marks):
    """Take the marks, as a list of one text or none, from the text that is at this place."""
    text = around[place] if 0 <= place < len(around) else None
    if not isinstance(text, nodes.Text) or not (found := marks.search(text)):
        return []
    around[place] = nodes.Text(marks.sub("", text))
    return [nodes.Text(found[0])]
