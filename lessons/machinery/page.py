"""Reads a lesson page: which code runs, and which outputs belong to it.

The grammar, line by line. Every fence starts at the left margin.

    ```python                   code that runs, in order, in one namespace
    ```python source=m.x:name   a quote: the source of `name` in module `m.x`; it is not run
    ```text                     what the block before it printed
    ![alt](figures/NN_x.png)    a figure that the block before it showed
    ``` or another word         shown as it is: neither run nor checked

An output belongs to a block that runs when nothing but blank lines, `</details>` and other outputs
stand between them. An output anywhere else is an error: nothing could keep it true.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

LESSONS = Path(__file__).resolve().parents[1]
IMAGE = re.compile(r"!\[(?P<alt>[^]]*)\]\((?P<path>[^)]+)\)")
SUMMARY = re.compile(r"<summary>(.*)</summary>")
HEADING = re.compile(r"#+ (.+)")


class PageError(Exception):
    """The page breaks the grammar above: `line` says where."""

    def __init__(self, line, message):
        super().__init__(message)
        self.line = line


@dataclass
class Fence:
    """The lines between two fences. `line` is the number of the first one, counted from 1."""

    line: int
    lines: list[str] = field(default_factory=list)

    @property
    def end(self):
        """Number of the closing fence."""
        return self.line + len(self.lines)


@dataclass
class Block(Fence):
    """A Python block, with what the page says about it."""

    heading: str = ""  # of the section that it is in, or "Solution 1"
    quote: str | None = None  # "module:name"; None for a block that runs
    solution: str | None = None  # the summary of the <details> that folds it
    output: Fence | None = None  # the text block after it
    images: list[tuple[int, str]] = field(default_factory=list)  # line and path of each picture

    @property
    def code(self):
        """The code behind empty lines, so that each line has the number it has on the page."""
        return "\n" * (self.line - 1) + "\n".join(self.lines) + "\n"


def find_pages():
    """Paths of all lessons in the order of their numbers, then of the appendices A1, A2, …"""
    return sorted(LESSONS.glob("[0-9A][0-9]_*.md"))


def read_blocks(path):
    """The Python blocks of a page, in order, each with its outputs."""
    blocks, fence, owner, solution, heading = [], None, None, None, ""
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), 1):
        if fence is not None:
            if line == "```":
                fence = None
            else:
                fence.lines.append(line)
        elif line.startswith("```"):
            fence, owner = _open_fence(number, line[3:], owner, solution)
            if isinstance(fence, Block):
                solves = solution and solution.startswith("Solution")
                fence.heading = solution if solves else heading
                blocks.append(fence)
        elif line.lstrip().startswith("```"):
            raise PageError(number, "an indented fence: start it at the left margin")
        elif image := IMAGE.match(line):
            if owner is None:
                raise PageError(number, "this picture follows no block that could draw it")
            owner.images.append((number, image["path"]))
        elif line.strip() not in ("", "</details>"):
            owner = None
            heading = found[1] if (found := HEADING.match(line)) else heading
        if fence is None and (folded := SUMMARY.match(line)):
            solution = folded[1]
        elif fence is None and line.startswith("</details>"):
            solution = None
    if fence is not None:
        raise PageError(fence.line - 1, "this fence is never closed")
    return blocks


def _open_fence(number, info, owner, solution):
    """The fence that opens on line `number`, and the block that owns the outputs from here on."""
    if info == "text":
        if owner is None or owner.output is not None:
            raise PageError(number, "this text follows no block that could have printed it")
        owner.output = Fence(number + 1)
        return owner.output, owner
    if info == "python":
        block = Block(number + 1, solution=solution)
        return block, block
    if quote := re.fullmatch(r"python source=([\w.]+:[\w.]+)", info):
        return Block(number + 1, quote=quote[1], solution=solution), None
    if info.startswith("python"):
        raise PageError(number, f"```{info}: write ```python or ```python source=module:name")
    return Fence(number + 1), None
