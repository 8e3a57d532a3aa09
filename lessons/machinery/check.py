"""Compare a page with the current output of its code, and bring it up to date."""

import difflib
from dataclasses import dataclass
from pathlib import Path

from lessons.machinery import figures, steppers
from lessons.machinery.execute import blame_page, quoted_lines, run_page
from lessons.machinery.page import PageError, read_blocks

WIDTH = 76  # columns of code that fit beside the text


@dataclass
class Problem:
    """A problem on line `line` of a page.

    A problem that `update` can repair carries the repair: either `lines`, which replace `old` from
    that line on, or `file`, the path and the bytes of a figure or of its stepper.
    """

    line: int
    message: str
    old: list[str] | None = None
    lines: list[str] | None = None
    file: tuple[Path, bytes] | None = None

    def __str__(self):
        if self.lines is None:
            return self.message
        names = "the page says", "the code says"
        diff = difflib.unified_diff(self.old, self.lines, *names, lineterm="", n=1)
        return "\n    ".join([self.message, *diff])

    @property
    def repairable(self):
        return self.lines is not None or self.file is not None


def find_problems(path):
    """Return all problems of a page, sorted by line. No block runs after one that fails."""
    found = []
    try:
        found += _static_problems(path)
        for block, outcome in run_page(path):
            found += _text_problems(block, outcome.lines)
            found += _figure_problems(block, outcome.figures, Path(path).parent)
            found += _stepper_problems(block, outcome.figures, path)
    except PageError as error:
        found.append(Problem(error.line, str(error)))
    return sorted(found, key=lambda problem: problem.line)


def update(path):
    """Update the outputs, quotes and figures of a page. Return the problems repaired and left."""
    problems = find_problems(path)
    page = Path(path).read_text("utf-8").splitlines()
    repaired = [problem for problem in problems if problem.repairable]
    for problem in reversed(repaired):  # from the end, so that line numbers stay valid
        if problem.file:
            target, content = problem.file
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(content)
        else:
            start = problem.line - 1
            page[start : start + len(problem.old)] = problem.lines
    Path(path).write_text("\n".join(page) + "\n", "utf-8")
    return repaired, [problem for problem in problems if not problem.repairable]


def _static_problems(path):
    """Find quotes that differ from the package's code, and lines of code that are too long."""
    found = []
    for block in read_blocks(path):
        if block.quote is None:
            for number, line in enumerate(block.lines, block.line):
                if len(line) > WIDTH:
                    found.append(Problem(number, f"{len(line)} columns, but the limit is {WIDTH}"))
            continue
        try:
            source = quoted_lines(block.quote)
        except LookupError as error:
            found.append(Problem(block.line - 1, str(error)))
            continue
        if source != block.lines:
            message = f"the quote of {block.quote} differs from the package's code"
            found.append(Problem(block.line, message, block.lines, source))
    return found


def _text_problems(block, printed):
    """Find printed text that is missing, superfluous or different; repairs add or remove fences."""
    if block.output is None:
        if not printed:
            return []
        fence = ["", "```text", *printed, "```"]
        return [Problem(block.end + 1, "the block printed, but no text follows it", [], fence)]
    if not printed:
        message, fence = "the block before this text prints nothing", block.output
        whole = ["```text", *fence.lines, "```"]
        return [Problem(fence.line - 1, message, whole, [])]
    if printed == block.output.lines:
        return []
    message = "the block before this text prints something different"
    return [Problem(block.output.line, message, block.output.lines, printed)]


def _figure_problems(block, drawn, folder):
    """Find figures that are missing, superfluous or different from what the block draws."""
    if len(drawn) != len(block.images):
        message = (
            f"{len(block.images)} images follow this block, but it shows {len(drawn)} figures: "
            "write one line ![what it shows](figures/NN_name.png) for each"
        )
        return [Problem(block.end, message)]
    found = []
    for (line, name), picture in zip(block.images, drawn, strict=True):
        target = folder / name
        if not target.exists():
            message = f"{name} does not exist"
        elif differences := figures.compare(figures.read_summary(target), picture.summary):
            message = "\n    ".join([f"{name} is not what the block draws", *differences])
        else:
            continue
        found.append(Problem(line, message, file=(target, picture.png)))
    return found


def _stepper_problems(block, drawn, path):
    """Find steppers that are missing, superfluous or different from what the block draws."""
    found = []
    for (line, name), picture in zip(block.images, drawn, strict=False):
        target = Path(path).parent / Path(name).with_suffix(".json")
        if picture.stepper is None:
            if target.exists():
                found.append(Problem(line, f"delete {target.name}: its figure has no stepper"))
            continue
        with blame_page(path, block.end):
            now = steppers.record(*picture.stepper)
        if not target.exists():
            message = f"{target.name} does not exist"
        elif differences := steppers.compare(target.read_text("utf-8"), now):
            message = "\n    ".join([f"{target.name} is not what the stepper draws", *differences])
        else:
            continue
        found.append(Problem(line, message, file=(target, now.encode())))
    return found
