"""Read a lesson page: find the code that runs and the outputs that belong to it.

The grammar, line by line; every fence starts at the left margin:

    ```python                   code that runs, in order, in one namespace
    ```python source=m.x:name   a quote: the source of `name` in module `m.x`; it is not run
    ```text                     the text printed by the preceding block
    ![alt](figures/NN_x.png)    a figure shown by the preceding block
    ``` or another word         shown verbatim, neither run nor checked

An output belongs to a block that runs if only blank lines, `</details>` and other outputs stand
between them. An output anywhere else is an error, because nothing could keep it up to date.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

LESSONS = Path(__file__).resolve().parents[1]
READING = ["01", "02", *(f"{n:02}" for n in range(4, 15)), "18", "03", "15", "16", "17"]
READING += ["A1", "A2", "A3"]
IMAGE = re.compile(r"!\[(?P<alt>[^]]*)\]\((?P<path>[^)]+)\)")
SUMMARY = re.compile(r"<summary>(.*)</summary>")
HEADING = re.compile(r"#+ (.+)")


class PageError(Exception):
    """An error on line `line` of a page, such as a violation of the grammar above."""

    def __init__(self, line, message):
        super().__init__(message)
        self.line = line


@dataclass
class Fence:
    """The lines between two fences. `line` is the number of the first line, counted from 1."""

    line: int
    lines: list[str] = field(default_factory=list)

    @property
    def end(self):
        """Line number of the closing fence."""
        return self.line + len(self.lines)


@dataclass
class Block(Fence):
    """A Python block and its context on the page."""

    heading: str = ""  # heading of its section, or "Solution 1"
    quote: str | None = None  # "module:name", or None for a block that runs
    solution: str | None = None  # summary of the <details> that contains it
    output: Fence | None = None  # the text block after it
    images: list[tuple[int, str]] = field(default_factory=list)  # line and path of each figure

    @property
    def code(self):
        """The code after empty lines, so that each line keeps its number on the page."""
        return "\n" * (self.line - 1) + "\n".join(self.lines) + "\n"


def find_pages(folder=LESSONS):
    """Return the paths of all lessons in the order of reading, then of the appendices."""
    return sorted(folder.glob("[0-9A][0-9]_*.md"), key=lambda path: READING.index(path.name[:2]))


def read_blocks(path):
    """Return the Python blocks of a page, in order, each with its outputs."""
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
            raise PageError(number, "indented fence: start it at the left margin")
        elif image := IMAGE.match(line):
            if owner is None:
                raise PageError(number, "this image follows no block that could have drawn it")
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
    """Return the fence that opens on line `number`, and the block to which later outputs belong."""
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
