"""Run commands as users do, in this process and in others."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment():
    """Return a user's environment, with buffered output and untranslated messages."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return own | {"PYTHONPATH": str(ROOT)}


def said_by(capsys, main, *arguments, code=0):
    """Run a command in this process; check its exit code and return its output."""
    capsys.readouterr()
    try:
        assert main([*map(str, arguments)]) == code
    except SystemExit as stopped:
        assert stopped.code == code
    return capsys.readouterr()


def run_data(folder, *arguments):
    """Run `python -m minicaps.data` in a folder that is also its home: no caches, no network."""
    own = environment() | {
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    own.pop("MINICAPS_DATA", None)
    line = [sys.executable, "-m", "minicaps.data", *arguments]
    return subprocess.run(line, cwd=folder, env=own, capture_output=True, text=True, timeout=600)
