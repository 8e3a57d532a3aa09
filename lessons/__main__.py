"""The command `python -m lessons`."""

import argparse
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from lessons.machinery import page
from minicaps.cli.command import start

CHOICES = ("run", "check", "update", "notebook", "web")
COMMANDS = """commands:
  (none)             list the lessons
  run 06             run a lesson as a script; figures go to a temporary folder;
                     with --interactive, go on in a Python session with its names
  check [06 ...]     compare texts, figures and quotes with the current code
  update [06 ...]    write current texts, figures and quotes into the pages
  notebook 06        write an executed Jupyter notebook, 06_name.ipynb, here
  web                build the web page, _site/index.html, from all lessons

A lesson is a number, an appendix such as A2, or the path of a page.
Exit status: 0 on success, 1 if a lesson failed, 2 on wrong usage.
"""


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m lessons",
        description="List, run, check and update the lessons.",
        epilog=COMMANDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=CHOICES)
    parser.add_argument("lesson", nargs="*", help="a number such as 06, A2, or the path of a page")
    text = "after `run`, go on in a Python session where everything of the lesson is defined"
    parser.add_argument("--interactive", action="store_true", help=text)
    options = parser.parse_args(arguments)
    if options.interactive and options.command != "run":
        parser.error("--interactive goes with run, for example `run 06 --interactive`")
    if options.command is None:
        return list_lessons()
    if options.command == "web":
        if options.lesson:
            parser.error("web takes no lesson: it builds the web page from all lessons")
        return web()
    if options.command in ("run", "notebook") and len(options.lesson) != 1:
        parser.error(f"{options.command} takes one lesson, for example `{options.command} 01`")
    try:
        paths = [find_page(name) for name in options.lesson] or page.find_pages()
    except LookupError as error:
        parser.error(error.args[0])
    if len(paths) > 1:  # one process each, so that no lesson can affect another
        command = [sys.executable, "-m", "lessons", options.command]
        nothing = subprocess.DEVNULL  # it could read what is meant for a later command
        done = [subprocess.run([*command, path], stdin=nothing, check=False) for path in paths]
        return max(process.returncode for process in done)
    commands = {"run": run, "check": check, "update": update, "notebook": notebook}
    try:
        if options.interactive:
            return run(paths[0], interactive=True)
        return commands[options.command](paths[0])
    except page.PageError as error:
        print(f"{shown_path(paths[0])}:{error.line}: {error}", file=sys.stderr)
        return 1
    except UnicodeDecodeError as error:
        print(f"{shown_path(paths[0])} is not UTF-8 text: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        what = f"cannot use {error.filename}" if error.filename else "stopped"
        print(f"{what}: {error.strerror or error}", file=sys.stderr)
        return 1


def find_page(name):
    """Return the path of the lesson with this number or path."""
    if name.endswith(".md"):
        if not Path(name).is_file():
            raise LookupError(f"there is no page {name}")
        return Path(name).resolve()
    numbers = {path.name[:2]: path for path in page.find_pages()}
    number = name.upper().zfill(2)
    if number not in numbers:
        raise LookupError(f"there is no lesson {name}; there are {', '.join(numbers)}")
    return numbers[number]


def list_lessons():
    for path in page.find_pages():
        text = path.read_text("utf-8")
        title = re.search(r"^# \w+ · (.+)$", text, re.MULTILINE)
        print(f"{path.name[:2]}  {title[1] if title else path.name}")
        for mark in ("You will", "Time"):
            if line := re.search(rf"^- \*\*{mark}\*\* (.+)$", text, re.MULTILINE):
                print(f"    {mark}: {line[1]}")
    return 0


def run(path, interactive=False):
    """Run a page as a script. Print its output below the headings of its sections, and write its
    figures as PNG files. interactive: then go on in a Python session with all its names."""
    from lessons.machinery import execute

    shown, folder, number, out = [], None, 0, Headed(sys.stdout)

    def write_figures():
        nonlocal folder, number
        for picture in shown:
            folder = folder or Path(tempfile.mkdtemp(prefix=f"{path.stem}-"))
            number += 1
            target = folder / f"{number}.png"
            target.write_bytes(picture.png)
            print(f"figure: {target}")
        shown.clear()

    with execute.stage(shown) as namespace:
        with contextlib.redirect_stdout(out):
            for block in page.read_blocks(path):
                if block.quote is not None:
                    continue
                out.begin(block.heading)
                execute.run_block(block, path, namespace)
                write_figures()
        if interactive:
            go_on(path, namespace, write_figures)
    return 0


class Headed(io.TextIOBase):
    """Stream that writes a heading before the first text of each section, if there is any."""

    def __init__(self, stream):
        self.stream, self.heading, self.written = stream, None, None

    def begin(self, heading):
        self.heading = heading

    def write(self, text):
        if text and self.heading != self.written:
            self.written = self.heading
            self.stream.write(f"\n{self.heading}\n{'-' * len(self.heading)}\n")
        return self.stream.write(text)

    def flush(self):
        self.stream.flush()


def go_on(path, namespace, after_each):
    """Let the user go on with the names of a page; call `after_each` after each input."""
    import code

    with contextlib.suppress(ImportError):  # not on Windows
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(namespace).complete)
        readline.parse_and_bind("tab: complete")

    class Session(code.InteractiveConsole):
        def runcode(self, code):
            super().runcode(code)
            after_each()

    names = ", ".join(name for name in namespace if not name.startswith("_"))
    banner = f"\nGo on with what {path.name} defined: {names}.\nCtrl-D ends the session."
    Session(namespace).interact(banner=banner, exitmsg="")


def check(path):
    from lessons.machinery.check import find_problems

    return report(path, find_problems(path), "agrees with its code")


def update(path):
    from lessons.machinery import check

    repaired, remaining = check.update(path)
    for problem in repaired:
        print(f"{shown_path(path)}:{problem.line}: updated: {problem.message}")
    return report(path, remaining, "is up to date")


def notebook(path):
    from lessons.machinery.notebook import make_notebook

    target = Path(f"{path.stem}.ipynb")
    if target.exists():  # it may contain a reader's changes
        print(f"{target} already exists: rename or remove it first", file=sys.stderr)
        return 1
    target.write_text(make_notebook(path), "utf-8")
    print(f"wrote {target}")
    return 0


def web():
    from lessons.machinery.web import build

    try:
        build.build()
    except build.SiteError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"wrote {shown_path(build.SITE / 'index.html')}: open it in a browser")
    return 0


def report(path, problems, well):
    for problem in problems:
        print(f"{shown_path(path)}:{problem.line}: {problem}")
    if not problems:
        print(f"{shown_path(path)} {well}")
    return 1 if problems else 0


def shown_path(path):
    """Return the path relative to the current folder: short, and clickable in most terminals."""
    return os.path.relpath(path)


if __name__ == "__main__":
    sys.exit(start(main))
