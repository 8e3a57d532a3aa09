"""The architecture: one-way imports, a small engine, and no heavy imports."""

import ast
import copy
import functools
import io
import tokenize
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import minicaps
from lessons.machinery.page import LESSONS, find_pages, read_blocks

ROOT = Path(minicaps.__file__).parent
# Each room may import from itself and from the rooms above it in this list.
ROOMS = (
    ("errors",),
    ("ranks",),
    ("backend", "storage"),
    ("sums",),
    ("threads", "graph"),
    ("tensor", "cli"),
    ("ops", "gradcheck", "optim", "data"),
    ("clustering",),
    ("routing",),
    ("nn",),
    ("models",),
    ("runs", "plotting"),
    ("export",),
    ("train", "evaluate", "bench", "predict", "explore"),
    ("experiments", "plot"),
)
ORDER = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
# The code on which every network runs, and its maximum size without optional fast paths
ENGINE = ("backend", "sums", "threads", "graph", "tensor", "ops", "clustering", "routing", "nn")
ENGINE += ("optim", "gradcheck", "ranks")
FAST_PATHS = ("ops/fourier.py", "ops/patches.py", "routing/centred.py", "sums.py")
ENGINE_LINES = 2650 + 148 + 20  # ranks.py, and its use by batch norm, dropout, threads, devices
FILES = sorted(ROOT.rglob("*.py"))


def room_of(path):
    """Return the package or top-level module to which a file belongs."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


def module_of(path):
    """Return the dotted name of a file's module."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def nodes(path):
    return list(ast.walk(ast.parse(path.read_text())))


@functools.cache
def imported(path):
    """Return the names of the modules of minicaps that a file imports anywhere."""
    modules, found = set(map(module_of, FILES)), []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [
                inner if (inner := f"{node.module}.{alias.name}") in modules else node.module
                for alias in node.names
            ]
        else:
            continue
        for name in names:
            assert name.partition(".")[0] != "lessons", "lessons import minicaps, not the reverse"
        found += [name for name in names if name in modules]
    return found


def test_every_room_has_its_place():
    rooms = {room_of(path) for path in FILES} - {"__init__", "__main__"}
    assert rooms == set(ORDER), "give each room a place in ROOMS"


def test_imports_go_one_way():
    wrong = []
    for path in FILES:
        room = room_of(path)
        for name in imported(path):
            other = name.removeprefix("minicaps.").partition(".")[0]
            if room in ORDER and other in ORDER and other != room and ORDER[other] >= ORDER[room]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_no_modules_import_each_other_in_a_circle():
    graph = {module_of(path): set(imported(path)) - {module_of(path)} for path in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))


def test_the_root_holds_the_engine_and_little_else():
    assert len(list(ROOT.glob("*.py"))) <= 14


def test_an_installed_wheel_has_every_module():
    """A wheel includes only packages, which are folders with an `__init__.py`."""
    assert {path.parent for path in FILES} == {path.parent for path in ROOT.rglob("__init__.py")}


def test_no_two_rooms_have_a_module_of_the_same_name():
    """Exceptions are experiments, whose names are commands, and mathematical terms."""
    rooms = {}
    for path in FILES:
        if room_of(path) != "experiments" and path.stem not in ("__init__", "__main__"):
            rooms.setdefault(path.stem, set()).add(room_of(path))
    twice = {stem: found for stem, found in rooms.items() if len(found) > 1}
    assert not twice.keys() - {"routing", "affine"}, twice


def lines_of_code(path):
    """Count the lines of code, without blank lines, comments and docstrings.

    A signature counts as if it had no type hints, which were added after the limit.
    """
    text = path.read_text()
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in nodes(path):
        lines -= set(lines_of_docstring(node))
    return len(lines) - sum(map(lines_of_hints, nodes(path)))


def lines_of_docstring(node):
    """Return the range of the lines of a node's docstring, empty if it has none."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
        text = body[0].value
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            return range(text.lineno, text.end_lineno + 1)
    return range(0)


def lines_of_hints(node):
    """Return the number of lines by which type hints lengthen the signature of a function."""
    if not isinstance(node, ast.FunctionDef):
        return 0
    last = max([node.lineno, *(n.end_lineno for n in ast.walk(node.args) if hasattr(n, "lineno"))])
    if node.returns:
        last = max(last, node.returns.end_lineno)
    closing = last > node.lineno  # a bracket on its own line
    plain = copy.deepcopy(node)
    for argument in ast.walk(plain.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    width = node.col_offset + len(f"def {node.name}({ast.unparse(plain.args)}):")
    return max(0, last - node.lineno + closing + 1 - (1 if width <= 100 else 3 + width // 200))


def test_the_engine_can_be_read_in_one_sitting():
    files = [path for path in FILES if room_of(path) in ENGINE]
    assert {room_of(path) for path in files} == set(ENGINE)
    files = [path for path in files if str(path.relative_to(ROOT)) not in FAST_PATHS]
    assert sum(map(lines_of_code, files)) <= ENGINE_LINES


def test_a_function_fits_on_a_screen():
    """Its code: a docstring that explains many parameters is read once."""
    too_long = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef) and lines_without_docstring(node) > 52
    ]
    assert not too_long


def lines_without_docstring(function):
    return function.end_lineno - function.lineno + 1 - len(lines_of_docstring(function))


def test_every_process_has_its_own_standard_input():
    """Otherwise, it could consume what a script passes on to its next command."""
    sources = [path.read_text() for path in (*FILES, *LESSONS.rglob("*.py"))]
    sources += [block.code for path in find_pages() for block in read_blocks(path)]
    starts = [
        f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen")
    ]
    calls = [
        node
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in starts
    ]
    assert len(calls) >= 3
    given = [{keyword.arg for keyword in call.keywords} for call in calls]
    assert all("stdin" in names for names in given), list(map(ast.unparse, calls))
