"""The front page and the pages beside the code: short, true, and every snippet runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import minicaps

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES += [*ROOT.glob("minicaps/**/README.md"), *ROOT.glob("lessons/*.md")]
PAGES += [*ROOT.glob("lessons/reference/*.md")]
SNIPPETS = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_the_front_page_is_short():
    assert README.count("\n") <= 130
    assert len(SNIPPETS) == 3


def test_the_front_page_says_where_the_commands_of_all_pages_are():
    """They are installed into a virtual environment, and the pages print them without its path."""
    text = "".join(path.read_text("utf-8") for path in PAGES)
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`((?:python|pip|mpiexec) [^`\n]+)`", text)
    programs = {line.split()[0] for line in lines if line} - {"python3", "git", "bash"}
    where = re.search(r"On all pages, (.*) stand for those in `\.venv/bin`", README)
    assert {name for name in programs if "/" not in name} == set(re.findall(r"`(\w+)`", where[1]))


@pytest.mark.parametrize("number", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_snippet_of_the_front_page_runs(number, tmp_path):
    command = [sys.executable, "-c", SNIPPETS[number]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if number == 0:
        assert done.stdout == "both gradients are correct\n"
    if number == 1:  # random images are learned by heart
        losses = list(map(float, done.stdout.split()))
        assert len(losses) == 10 and losses[-1] < losses[0]
    if number == 2:
        *_, last = done.stdout.splitlines()
        assert float(last.split()[-1]) > 0.9


RESULTS = README.split("## Results")[1].split("\n\n")
VERDICTS = (ROOT / "lessons/16_experiments.md").read_text("utf-8").split("## 16.13 Verdicts")[1]
FOUND_HERE = "\n".join(row.split("|")[4] for row in VERDICTS.split("\n\n")[2].split("\n"))


@pytest.mark.parametrize(
    ("table", "least"),
    [(RESULTS[2], 12), (RESULTS[3], 12), (FOUND_HERE, 40)],
    ids=["results", "verdicts", "all verdicts"],
)
def test_every_result_on_the_front_page_is_on_the_page_beside_its_code(table, least):
    """Where a command, or a test, holds it; so is every result among the verdicts of lesson 16."""
    beside = "".join(path.read_text("utf-8") for path in ROOT.glob("minicaps/*/README.md"))
    found = re.findall(r"\d[\d,]*\.\d+", table)
    assert len(found) >= least
    assert [number for number in found if number not in beside] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_has_its_target(path):
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    for target, _, place in re.findall(r"\]\(([^)#\s]*)(#([^)\s]*))?\)", text):
        if "://" in target:
            continue
        file = path.parent / target if target else path
        assert file.exists(), f"{path.name} links {target}"
        if place:
            there = file.read_text("utf-8")
            headings = re.findall(r"^#+ (.+)$", there, flags=re.MULTILINE)
            anchors = set(re.findall(r'<a name="([^"]+)">', there))
            anchors |= {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
            assert place in anchors, f"{path.name} links {target}#{place}"


def test_one_version_everywhere():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    version, date = re.findall(r"^(?:version|date-released): (\S+)$", citation, flags=re.MULTILINE)
    assert version == minicaps.__version__
    first = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[1]
    assert first in ("Unreleased", f"{version} ({date})")
