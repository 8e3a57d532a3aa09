"""What all commands print when they fail."""

from minicaps.cli.command import fail


def test_control_characters_do_not_reach_the_terminal(capsys):
    """A file name may contain them, and newlines; indented lines of a message stay."""
    assert fail("minicaps.data", "bad \x1b[31mname\x07.png\nfine\n  rest", 3) == 3
    assert capsys.readouterr().err == "minicaps.data: bad \\x1b[31mname\\x07.png\\nfine\n  rest\n"
