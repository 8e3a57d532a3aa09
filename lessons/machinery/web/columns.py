"""Sphinx extension that sets prose beside the code that follows it and links numbered equations.

A page is divided into rows. The left side of a row holds a run of prose, the right side the code,
outputs and figures that follow it. Tables and solutions span both; a solution has rows inside.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.errors import SphinxError

from lessons.machinery.page import find_pages

NUMBER = re.compile(r"\((\d+\.\d+)\)")
NUMBERED = re.compile(r"\\qquad \((\d+\.\d+)\)\s*$", re.MULTILINE)
GAP = re.compile(r"(?<=,)\s*\\quad\s|\\qquad\s")
COMMENT = re.compile(r'<span class="(?:c1|sd)">.*?</span>', re.DOTALL)


def setup(app):
    app.connect("builder-inited", find_equations)
    app.connect("doctree-read", number_equations)
    app.connect("doctree-read", link_prose)
    app.connect("doctree-read", lay_out)
    app.connect("doctree-read", add_steppers)
    app.connect("html-page-context", finish_page, priority=900)  # after the theme
    return {"parallel_read_safe": True}


# ---- equations


def find_equations(app):
    """Record the address of each numbered equation in the lessons."""
    app.config.equations = {
        number: f"{path.stem}.html#eq-{number}"
        for path in find_pages()
        for number in NUMBERED.findall(path.read_text("utf-8"))
    }


def number_equations(app, doctree):
    """Turn the number at the end of a formula into its tag and a target for links."""
    for formula in list(doctree.findall(nodes.math_block)):
        if found := NUMBERED.search(formula.astext()):
            words = formula.astext()[: found.start()]
            formula[:] = [nodes.Text(rf"{in_lines(words)}\tag{{{found[1]}}}")]
            place = nodes.container("", classes=["equation"], ids=[f"eq-{found[1]}"])
            formula.replace_self(place)  # the theme would duplicate an id on the formula itself
            place += formula


def in_lines(formula):
    """Break a long formula into lines at its wide gaps, so that it fits into a column."""
    lines = []
    for piece in GAP.split(formula) if len(formula) > 75 else [formula]:
        if lines and len(lines[-1] + piece) <= 60:
            lines[-1] += rf" \quad {piece}"
        else:
            lines.append(piece)
    whole = all(line.count("{") == line.count("}") and r"\begin" not in line for line in lines)
    gathered = r"\begin{gathered}" + r" \cr ".join(lines) + r"\end{gathered}"
    return gathered if len(lines) > 1 and whole else formula


def link_prose(app, doctree):
    """Turn each (6.4) in the prose into a link to its equation."""
    closed = (nodes.literal, nodes.FixedTextElement, nodes.math, nodes.reference, nodes.raw)
    for text in list(doctree.findall(nodes.Text)):
        if isinstance(text.parent, closed) or not NUMBER.search(text):
            continue
        pieces = []
        for place, piece in enumerate(NUMBER.split(text)):
            address = app.config.equations.get(piece) if place % 2 else None
            words = nodes.Text(f"({piece})" if place % 2 else piece)
            link = nodes.reference("", "", words, refuri=address, internal=True)
            pieces.append(link if address else words)
        text.parent.replace(text, pieces)


def link_comments(app, html):
    """Do the same in the comments and docstrings of highlighted code."""

    def link(found):
        address = app.config.equations.get(found[1])
        return f'<a href="{address}">{found[0]}</a>' if address else found[0]

    return COMMENT.sub(lambda comment: NUMBER.sub(link, comment[0]), html)


# ---- columns


def lay_out(app, doctree):
    for section in list(doctree.findall(nodes.section)):
        section[:] = rows(section.children)


def rows(children):
    """Return the nodes in order, with each run of prose and the code after it put into a row."""
    made, words, work = [], [], []

    def close():
        if words or work:
            cells = [nodes.container("", *words, classes=["words"])]
            cells += [nodes.container("", *work, classes=["work"])] if work else []
            made.append(nodes.container("", *cells, classes=["row"]))
        words.clear()
        work.clear()

    for kind, group in grouped(children):
        if (kind == "words" and work) or kind == "wide":
            close()
        {"words": words, "work": work, "wide": made}[kind].extend(group)
    close()
    return made


def grouped(children):
    """Yield (kind, nodes). A <details>, from its opening tag to its closing tag, is one group."""
    children = iter(children)
    for node in children:
        if not is_tag(node, "<details>"):
            yield kind_of(node), [node]
            continue
        inside = []
        for folded in children:
            if is_tag(folded, "</details>"):
                break
            inside.append(folded)
        else:
            place = f"{Path(node.source).name}:{node.line}"
            remedy = "write </details> on a line of its own, with blank lines around it"
            raise SphinxError(f"{place}: this <details> is never closed: {remedy}")
        if all(kind_of(folded) == "work" for folded in inside):
            yield "work", [node, *inside, folded]
        else:
            yield "wide", [node, *rows(inside), folded]


def is_tag(node, tag):
    return isinstance(node, nodes.raw) and node.astext().strip().startswith(tag)


def kind_of(node):
    if isinstance(node, (nodes.section, nodes.title, nodes.table)):
        return "wide"
    listing = isinstance(node, nodes.literal_block) or "literal-block-wrapper" in node["classes"]
    return "work" if listing or is_picture(node) else "words"


def is_picture(node):
    return isinstance(node, nodes.paragraph) and all(
        isinstance(part, nodes.image) for part in node.children
    )


def add_steppers(app, doctree):
    """Add the data of its stepper to each figure that has one; stepper.js does the rest."""
    for picture in list(doctree.findall(nodes.image)):
        data = (app.srcdir / picture["uri"]).with_suffix(".json")
        if data.is_file():
            text = data.read_text("utf-8").replace("</", "<\\/")
            script = f'<script type="application/json" class="stepper-data">{text}</script>'
            picture.parent.append(nodes.raw("", script, format="html"))


# ---- the finished page


def finish_page(app, pagename, templatename, context, doctree):
    if body := context.get("body"):
        context["body"] = link_comments(app, body)
    tree = context["toctree"](collapse=True, titles_only=False, maxdepth=2, includehidden=True)
    context["furo_navigation_tree"] = tree  # with the sections of this page
    context["furo_hide_toc"] = True  # leaves its space for the code
