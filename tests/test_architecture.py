"""The house: imports go one way, the engine stays small, importing it stays light."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

import minicaps

ROOT = Path(minicaps.__file__).parent
# Each room may import from itself and from the rooms above it.
ROOMS = (
    ("backend",),
    ("threads",),
    ("graph",),
    ("tensor",),
    ("ops", "gradcheck"),
    ("clustering",),
    ("routing",),
    ("nn",),
    ("models", "optim", "checkpoint"),
    (
        "data",
        "plotting",
        "allocator",
        "losses",
        "diagnosis",
        "lock",
        "machine",
        "scores",
        "multilabel",
        "building",
        "stopping",
    ),
    ("measuring",),
    ("training",),
    ("command", "runs", "display", "insight"),
    ("options", "estimate", "samples", "evaluation", "evaluation_multi"),
    ("session",),
    ("repeat",),
    ("train", "evaluate", "predict", "bench", "experiments"),
    ("plot",),
    ("__main__",),
)
ORDER = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
# What every network runs on, and what stands beside it: lines of code at most
SIZES = {
    ("backend", "threads", "graph", "tensor", "ops", "routing", "nn", "optim"): 2700,
    ("clustering",): 300,
    ("models",): 335,
}
FILES = sorted(ROOT.rglob("*.py"))


def room_of(path):
    """The module or package of a file; a command of a package may import what all commands do."""
    if path.name == "__main__.py":
        return "__main__"
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imported_rooms(tree):
    """Rooms of minicaps that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == "minicaps" and (room := rest.partition(".")[0]) in ORDER:
                yield room
            assert top != "lessons", "lessons import minicaps, never the reverse"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    room = room_of(path)
    if room == "__init__":
        return
    assert room in ORDER, f"give {room} a place in ROOMS"
    for other in imported_rooms(ast.parse(path.read_text())):
        assert other == room or ORDER[other] < ORDER[room], f"{room} imports {other}"


def lines_of_code(path):
    """Lines with code on them: no blank lines, comments or docstrings."""
    text = path.read_text()
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines -= set(range(value.lineno, value.end_lineno + 1))
    return len(lines)


@pytest.mark.parametrize(("rooms", "most"), SIZES.items())
def test_the_engine_can_be_read_in_one_sitting(rooms, most):
    files = [path for path in FILES if room_of(path) in rooms]
    assert {room_of(path) for path in files} == set(rooms)
    assert sum(map(lines_of_code, files)) <= most


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_function_fits_on_a_screen(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{node.name} is too long"
