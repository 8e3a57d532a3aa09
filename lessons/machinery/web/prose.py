"""Sphinx extension that adapts the headings of boxes and the line breaks beside formulas.

A box in Markdown, `> [!TIP]`, starts with its title in bold, which becomes its heading here. A
formula is an image, next to which a browser may break the line, so punctuation is kept with it.
"""

import re

from docutils import nodes

OPENING, CLOSING = re.compile(r"[^\w\s]+$"), re.compile(r"^[^\w\s]+")


def setup(app):
    app.connect("doctree-read", head_boxes)
    app.connect("doctree-read", hold_marks)
    return {"parallel_read_safe": True}


def head_boxes(app, doctree):
    """Make the bold words that open a box its heading, in place of "Tip"."""
    for box in list(doctree.findall(nodes.tip)):
        words = box.next_node(nodes.strong)
        if words and box.astext().startswith(words.astext()):
            words.parent.remove(words)
            heading = nodes.title("", words.astext().rstrip("."))
            box.replace_self(nodes.admonition("", heading, *box.children, classes=["tip"]))


def hold_marks(app, doctree):
    """Keep an inline formula and the punctuation around it together, in an unbreakable span."""
    for formula in list(doctree.findall(nodes.math)):
        around = formula.parent
        place = around.index(formula)
        before, after = _take(around, place - 1, OPENING), _take(around, place + 1, CLOSING)
        if before or after:
            around[place] = nodes.inline("", "", *before, formula, *after, classes=["held"])


def _take(around, place, marks):
    """Remove the punctuation from the text at this place; return a list of one text, or []."""
    text = around[place] if 0 <= place < len(around) else None
    if not isinstance(text, nodes.Text) or not (found := marks.search(text)):
        return []
    around[place] = nodes.Text(marks.sub("", text))
    return [nodes.Text(found[0])]
