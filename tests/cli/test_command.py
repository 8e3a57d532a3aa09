"""What the overview prints, and what all commands print when they fail."""

import ast
from pathlib import Path

import pytest
from commands import said_by

import minicaps
from minicaps import __main__ as overview
from minicaps.cli.command import fail

ROOT = Path(minicaps.__file__).parent


def test_control_characters_do_not_reach_the_terminal(capsys):
    """A file name may contain them, and newlines; indented lines of a message stay."""
    assert fail("minicaps.data", "bad \x1b[31mname\x07.png\nfine\n  rest", 3) == 3
    assert capsys.readouterr().err == "minicaps.data: bad \\x1b[31mname\\x07.png\\nfine\n  rest\n"


def test_the_overview_lists_every_command(capsys):
    for words in ((), ("--help",), ("-h",)):
        said = said_by(capsys, overview.main, *words)
        assert all(f"python -m minicaps.{name} " in said.out for name in overview.COMMANDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "each command is a module: write python -m minicaps.train"),
        (["train", "--help"], "each command is a module: write python -m minicaps.train --help"),
        (["predict", "a b"], "each command is a module: write python -m minicaps.predict 'a b'"),
        (["trian", "-x"], "no command 'trian': do you mean python -m minicaps.train -x?"),
        (["lessons"], "there is no command 'lessons': python -m minicaps lists the commands"),
        (["--version"], "there is no command '--version': python -m minicaps lists the commands"),
        (["\x1b[1m"], r"there is no command '\x1b[1m': python -m minicaps lists the commands"),
    ],
)
def test_a_word_after_the_package_is_an_error_that_names_the_command(words, message, capsys):
    said = said_by(capsys, overview.main, *words, code=2)
    assert said.out == "" and said.err.startswith("python -m minicaps: error: ")
    assert said.err.endswith(f"{message}\n")


def test_the_lines_of_every_message_are_indented():
    """`fail` escapes all other newlines, so the message would show them as characters."""
    wrong = []
    for path in ROOT.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        messages = [
            node for node in nodes if isinstance(node, ast.Raise) or name_of(node) == "fail"
        ]
        texts = [text for message in messages for text in ast.walk(message)]
        replaced = [old for call in texts if name_of(call) == "replace" for old in call.args]
        for text in texts:
            value = getattr(text, "value", None)
            fine = not isinstance(value, str) or text in replaced
            if not fine and "\n" in value.replace("\n  ", ""):
                wrong.append(f"{path.relative_to(ROOT)}:{text.lineno}: {value!r}")
    assert wrong == []


def name_of(node):
    """Return the name of the function or the method that a node calls, or None."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", None))
