"""Rules for the form of a lesson page: math that survives Markdown, equation numbers, template.

Each rule takes a Page and yields (line, message); `lessons/machinery/README.md` explains them.
"""

import ast
import html
import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from markdown_it import MarkdownIt
from matplotlib.mathtext import MathTextParser

from lessons.machinery.page import IMAGE, find_pages, read_blocks

matplotlib.use("Agg")
MARKDOWN = MarkdownIt("commonmark").enable("table")
MATHTEXT = MathTextParser("agg")
NUMBER = re.compile(r"\((\d+)\.(\d+)\)")
MOVED = {("14", 9): "18", ("14", 10): "18"}  # where an equation is since its lesson was split
# words, blocks and figures: thirteen experiments, and the verdicts
LONGER = {"16_experiments": (4800, 22, 7)}


@dataclass
class Formula:
    line: int
    body: str
    display: bool
    touched: bool  # by a letter or digit just outside its dollars


class Page:
    """A page, and the views of it that the rules share."""

    def __init__(self, path):
        self.path = Path(path)
        self.text = self.path.read_text("utf-8")
        self.lesson = self.path.name[:2].lstrip("0")  # "6", or "A2" for an appendix
        self.blocks = read_blocks(path)
        self.words = _without_code(self.text)  # code blanked, line numbers kept
        self.formulas, self.prose = _take_formulas(self.words)  # formulas blanked too
        self.numbers = [
            (formula.line, found[1], int(found[2]))
            for formula in self.formulas
            if formula.display
            and (found := re.search(r"\\qquad \((\d+)\.(\d+)\)$", formula.body.rstrip()))
        ]

    def lines_of(self, text):
        return enumerate(text.split("\n"), 1)


def problems(path):
    """Return all violations in a page as `name:line: message`, in the order of the page."""
    page = Page(path)
    rules = FORM + TEMPLATE if page.lesson.isdigit() else FORM
    found = sorted(entry for rule in rules for entry in rule(page))
    return [f"{page.path.name}:{line}: {message}" for line, message in found]


def _without_code(text):
    """Return the text with fenced code and code spans blanked."""
    lines, inside = [], False
    for line in text.split("\n"):
        fence = line.startswith("```")
        lines.append("" if fence or inside else re.sub(r"`[^`]+`", "``", line))
        inside ^= fence
    return "\n".join(lines)


def _take_formulas(text):
    """Return all formulas in order, and the text in which they are blanked."""
    found = []

    def blank(match, display):
        line = text.count("\n", 0, match.start()) + 1 + display
        around = match.string[match.start() - 1 : match.start()] + match.string[match.end() :][:1]
        found.append(Formula(line, match[1], display, any(map(str.isalnum, around))))
        return "\n" * match[0].count("\n") if display else "x" * len(match[0])

    text = re.sub(r"^\$\$\n(.*?)\n\$\$$", lambda m: blank(m, True), text, flags=re.M | re.S)
    text = re.sub(r"\$([^$\n]+)\$", lambda m: blank(m, False), text)
    return sorted(found, key=lambda formula: formula.line), text


# ---- math


def dollars_match(page):
    """Check that each $ opens or closes a formula, and that $$ is alone between blank lines."""
    for line, text in page.lines_of(page.prose):
        if "$" in text:
            yield line, "a $ without its partner on the line, or $$ not on its own line"
    lines = ["", *page.words.split("\n"), ""]
    inside = False
    for line, text in enumerate(lines):
        if text == "$$":
            inside = not inside
            if lines[line - 1 if inside else line + 1].strip():
                yield line, "put a blank line before and after a display formula"
    for formula in page.formulas:
        if formula.touched:
            yield formula.line, f"a letter or digit touches ${formula.body}$ from outside"
    for line, text in page.lines_of(page.words):
        if text.startswith("#") and "$" in text:
            yield line, "a heading must not contain math"


FORBIDDEN = [
    (r"\\[^A-Za-z\s]", "a backslash before punctuation is eaten by Markdown"),
    (r"\\(operatorname|tag|mbox|phantom)\b", "not every renderer knows this command"),
    (r"[<>]", r"write \lt or \gt"),
    (r"[*~]", r"Markdown interprets this character: write \cdot, \ast or \quad"),
]


def formulas_avoid_what_breaks(page):
    for formula in page.formulas:
        for pattern, why in FORBIDDEN:
            if found := re.search(pattern, formula.body):
                line = formula.line + formula.body.count("\n", 0, found.start())
                yield line, f"{found[0]} in a formula: {why}"


def formulas_survive_markdown(page):
    """Check that each formula is preserved verbatim in the page's HTML as made by CommonMark."""
    rendered = MARKDOWN.render(page.text)
    rendered = re.sub(r"<pre>.*?</pre>|<code>.*?</code>", "", rendered, flags=re.S)
    text = _one_space(html.unescape(re.sub(r"</?[a-z][^>]*>", "", rendered)))
    position = 0
    for formula in page.formulas:
        mark = "$$\n" if formula.display else "$"
        wanted = _one_space(mark + formula.body + mark[::-1])
        at = text.find(wanted, position)
        if at < 0:
            yield formula.line, f"Markdown changes this formula: {wanted}"
        else:
            position = at + len(wanted)


def _one_space(text):
    return re.sub(r"\s+", " ", text)


def formulas_render(page):
    """Check that mathtext, the available renderer, accepts each formula and each matrix cell."""
    for formula in page.formulas:
        body = formula.body
        try:
            body = re.sub(r"\\qquad \(\d+\.\d+\)$", "", body.rstrip())
            for piece in _pieces(body):
                MATHTEXT.parse(f"${_dialect(piece)}$")
        except ValueError as error:
            yield formula.line, f"mathtext cannot render ${formula.body}$: {_last_line(error)}"


ENVIRONMENT = re.compile(
    r"\\begin\{(pmatrix|cases|aligned)\}((?:(?!\\begin).)*?)\\end\{\1\}", re.DOTALL
)


def _pieces(body):
    """Return the cells of all matrices, innermost first, and the formula with letters for them."""
    while found := ENVIRONMENT.search(body):
        yield from (cell for cell in re.split(r"&|\\cr\b", found[2]) if cell.strip())
        body = body[: found.start()] + " M " + body[found.end() :]
    yield body


def _dialect(formula):
    """Replace commands of GitHub's MathJax that have other names in mathtext."""
    formula = " ".join(formula.split())
    for name, other in ALIASES.items():
        formula = re.sub(rf"\\{name}(?![a-zA-Z])", lambda _, o=other: o, formula)
    fonts = r"\\(mathbf|mathrm|mathcal|mathbb|mathsf|boldsymbol) +(\w|\\[a-zA-Z]+)"
    return re.sub(fonts, r"\\\1{\2}", formula)


ALIASES = {
    "lVert": r"\Vert",
    "rVert": r"\Vert",
    "lvert": r"\vert",
    "rvert": r"\vert",
    "lt": "<",
    "gt": ">",
    "le": r"\leq",
    "ge": r"\geq",
    "iff": r"\Leftrightarrow",
    "implies": r"\Rightarrow",
}


def _last_line(error):
    return str(error).strip().splitlines()[-1]


# ---- equation numbers


def numbers_run(page):
    """Check that numbers run 1, 2, 3. An equation that moved to another page keeps its number."""
    own = ((page.lesson, n) for n in itertools.count(1) if (page.lesson, n) not in MOVED)
    guests = (equation for equation, there in MOVED.items() if there == page.lesson)
    for line, lesson, number in page.numbers:
        guest = next(guests, None) if lesson != page.lesson else None
        expected = guest or next(own)
        if (lesson, number) != expected:
            expected = "({}.{})".format(*expected)
            yield line, f"equation ({lesson}.{number}) should be {expected}: numbers run 1, 2, 3"
    for lesson, number in guests:
        yield 1, f"equation ({lesson}.{number}) moved to this page but is not here"


def references_exist(page):
    known = {(lesson, number) for _, lesson, number in page.numbers}
    for line, text in [*page.lines_of(page.prose), *_comments(page)]:
        for found in NUMBER.finditer(text):
            lesson, number = found[1], int(found[2])
            here = lesson == page.lesson and (lesson, number) not in MOVED
            if (lesson, number) not in (known if here else _numbers_of(lesson)):
                yield line, f"there is no equation {found[0]}"


def _numbers_of(lesson):
    names = {lesson, *(there for (left, _), there in MOVED.items() if left == lesson)}
    pages = [Page(path) for path in find_pages() if path.name[:2].lstrip("0") in names]
    return {(lesson, number) for page in pages for _, lesson, number in page.numbers}


def _comments(page):
    for block in page.blocks:
        for line, text in enumerate(block.lines, block.line):
            if "#" in text:
                yield line, text.split("#", 1)[1]


# ---- figures, code and template


def pictures_speak(page):
    for line, text in page.lines_of(page.text):
        for picture in IMAGE.finditer(text):
            if len(picture["alt"]) < 30:
                yield line, "the alt text should describe the figure in at least 30 characters"
            if not (page.path.parent / picture["path"]).is_file():
                yield line, f"{picture['path']} does not exist"


def imports_are_few(page):
    allowed = {*sys.stdlib_module_names, "numpy", "matplotlib", "minicaps"}
    for block in page.blocks:
        for node in ast.walk(ast.parse(block.code)) if block.quote is None else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                if name.split(".")[0] not in allowed:
                    yield node.lineno, f"a lesson must not import {name}"


def parts_are_there(page):
    """Check for the parts of the template, in their order."""
    parts = [
        rf"# {page.lesson} · ",
        r"- \*\*You will\*\* ",
        r"- \*\*You need\*\* ",
        r"- \*\*Time\*\* ",
        r"> \[!TIP\]\n> \*\*Predict first\.\*\* ",
        r"## Exercises$",
        r"## Summary$",
        r"\|.*\|$",
        r"## References$",
    ]
    position = 0
    for part in parts:
        found = re.compile("^" + part, re.MULTILINE).search(page.text, position)
        if not found:
            yield page.text.count("\n", 0, position) + 1, f"there is no {part} after this line"
        else:
            position = found.end()


def predictions_are_answered(page):
    """Check that the prediction is answered, by that word, within two sections of its box.

    A box that repeats the question counts like the first.
    """
    before, *after = page.words.split("> **Predict first.**")
    line = before.count("\n") + 1
    if after and not any("prediction" in text for text in after):
        yield line, "the text never mentions the prediction by that word"
    elif after and not any(ANSWER.search("## ".join(_sections(text)[:3])) for text in after):
        yield line, "no sentence on the prediction names the correct one within two sections"


ANSWER = re.compile(
    r"^(?!>).*\bprediction\b.*(\([a-e]\)|\b(correct|right)\b)|"
    r"^(?!>).*(\([a-e]\)|\b(correct|right)\b).*\bprediction\b",
    re.MULTILINE,
)


def _sections(text):
    return re.split(r"^## ", text, flags=re.MULTILINE)


def exercises_have_solutions(page):
    head, mark, exercises = page.prose.partition("\n## Exercises\n")
    exercises = exercises.partition("\n## ")[0]
    line = head.count("\n") + 2
    numbers = re.findall(r"^(\d+)\. ", exercises, re.MULTILINE)
    wanted = [str(number + 1) for number in range(len(numbers))]
    solutions = re.findall(r"^<summary>Solution (\d+)</summary>$", exercises, re.MULTILINE)
    if mark and numbers != solutions:
        yield line, f"exercises {numbers} have solutions {solutions}"
    if mark and (numbers != wanted or not 3 <= len(numbers) <= 6):
        yield line, f"there should be 3 to 6 exercises, numbered from 1, not {numbers}"


def exercises_name_their_difficulty(page):
    head, _, exercises = page.prose.partition("\n## Exercises\n")
    start = head.count("\n") + 3
    marks = []
    for line, text in enumerate(exercises.partition("\n## ")[0].split("\n"), start):
        if re.match(r"\d+\. ", text):
            mark = re.match(r"\d+\. \*\*(Warm-up|Standard|Hard)\.\*\* ", text)
            marks.append((line, mark and mark[1]))
    for line, mark in marks:
        if mark is None:
            yield line, "an exercise begins with **Warm-up.**, **Standard.** or **Hard.**"
    if marks and marks[0][1] not in (None, "Warm-up"):
        yield marks[0][0], "the first exercise should be a warm-up"


def size_is_right(page):
    text = page.prose.rstrip().rpartition("\n")[0]  # the last line links to the neighboring lessons
    words = len(re.sub(r"<details>.*?</details>", "", text, flags=re.S).split())
    blocks = [block for block in page.blocks if not block.solution and block.quote is None]
    pictures = sum(
        not path.endswith("_layer.png") for block in page.blocks for _, path in block.images
    )  # the diagram of a layer, a signpost on several pages, does not count
    most_words, most_blocks, most_figures = LONGER.get(page.path.stem, (2300, 15, 4))
    for count, low, high, what in [
        (words, 800, most_words, "words"),
        (len(blocks), 6, most_blocks, "blocks of code"),
        (pictures, 1, most_figures, "figures"),
    ]:
        if not low <= count <= high:
            yield 1, f"{count} {what}; a lesson has {low} to {high}"
    for block in blocks:
        lines = sum(bool(line.strip()) for line in block.lines)
        if not 3 <= lines <= 15:
            yield block.line, f"{lines} lines of code; a block has 3 to 15"


def words_are_kind(page):
    for line, text in page.lines_of(page.prose):
        if found := re.search(r"\b(simply|obviously|trivially)\b", text, re.IGNORECASE):
            yield line, f'"{found[0]}" does not help readers who are stuck'


FORM = [
    dollars_match,
    formulas_avoid_what_breaks,
    formulas_survive_markdown,
    formulas_render,
    numbers_run,
    references_exist,
    pictures_speak,
    imports_are_few,
    words_are_kind,
]
TEMPLATE = [  # an appendix has its own
    parts_are_there,
    predictions_are_answered,
    exercises_have_solutions,
    exercises_name_their_difficulty,
    size_is_right,
]
