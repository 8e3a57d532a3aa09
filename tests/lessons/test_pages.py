"""The lessons are correct and well formed, and the checks that say so can fail."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import lesson_rules
import numpy as np
import pytest
from mpi import needs_mpi
from PIL import Image
from thinning import thinned, thinned_rows

from lessons.__main__ import main
from lessons.machinery import figures, moving
from lessons.machinery.check import find_problems, update
from lessons.machinery.notebook import make_notebook
from lessons.machinery.page import LESSONS, find_pages, read_blocks

ROOT = LESSONS.parent
PAGES = find_pages()


# ---- the pages


# Running a page takes seconds; this is one of the shortest.
@pytest.mark.parametrize("name", thinned([p.stem for p in PAGES], ["02_autograd"]))
def test_lesson_is_as_its_code_says(name):
    done = lessons("check", name[:2])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", thinned([p.stem for p in PAGES], ["02_autograd"]))
def test_lesson_is_well_formed(name):
    assert lesson_rules.problems(LESSONS / f"{name}.md") == []


def test_the_contents_link_every_lesson_by_its_title():
    contents = (LESSONS / "README.md").read_text("utf-8")
    for path in PAGES:
        title = path.read_text("utf-8").splitlines()[0].removeprefix("# ")
        number, name = title.split(" · ")
        assert f"| {number} | [{name}]({path.name}) |" in contents


def test_each_page_ends_with_links_to_its_neighbours():
    titles = [path.read_text("utf-8").splitlines()[0].removeprefix("# ") for path in PAGES]
    for k, path in enumerate(PAGES):
        links = [f"[← {titles[k - 1]}]({PAGES[k - 1].name})"] if k else []
        links += [f"[{titles[k + 1]} →]({PAGES[k + 1].name})"] if path != PAGES[-1] else []
        assert path.read_text("utf-8").endswith("\n\n" + " · ".join(links) + "\n"), path.name


def test_each_lesson_but_the_last_ends_with_the_question_of_the_next():
    *lessons_before, last = [path for path in PAGES if path.name[0] != "A"]
    for path in (*lessons_before, last):
        question = path.read_text("utf-8").rstrip().rpartition("\n\n")[0].rpartition("\n\n")[2]
        asked = question.startswith("**Next question.** ") and question.endswith("?")
        assert asked == (path != last), path.name


def test_every_function_that_a_page_names_exists():
    """In the code of the page, or in the repository: names change."""
    folders = ("minicaps", "lessons/machinery", "tests")
    known = "".join(p.read_text("utf-8") for f in folders for p in (ROOT / f).rglob("*.py"))
    known += "".join(path.read_text("utf-8") for path in (ROOT / "lessons").glob("*.py"))
    for path in PAGES:
        text = path.read_text("utf-8")
        code = "".join(block.code for block in read_blocks(path))
        words = set(re.findall(r"\w+", known + code))
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        named = set(re.findall(r"`(_?[a-z]+(?:_[a-z]+)+)`", prose))
        assert named <= words, f"{path.name}: {named - words}"


def test_no_page_holds_a_sentence_of_its_chinese_sources():
    """Titles in 《》 and quotations of a few words are fine."""
    for path in PAGES:
        text = re.sub("《[^》]*》", "", path.read_text("utf-8"))
        assert not re.search("[\u3001-\u3011\u4e00-\u9fff\uff00-\uffef]{12}", text), path.name


def test_the_figure_that_moves_is_what_its_code_draws():
    """Up to the last digit of a coordinate, which another processor may round differently."""
    kept, made = moving.TARGET.read_text("utf-8"), moving.figure()
    number = r"\d+\.\d"
    assert re.sub(number, "", kept).count("<animate") == 42 + 3  # dots and centers
    found, expected = (np.array(re.findall(number, text), float) for text in (made, kept))
    np.testing.assert_allclose(found, expected, atol=0.11)
    assert moving.TARGET.name in (LESSONS / "README.md").read_text("utf-8")


def test_every_picture_is_on_a_page():
    shown = {name for path in PAGES for block in read_blocks(path) for _, name in block.images}
    kept = {f"figures/{path.name}" for path in (LESSONS / "figures").glob("*.png")}
    assert kept <= shown


# ---- a made-up lesson that is correct in every part, and the module that it quotes

MODULE = """
import functools


def twice(function):
    @functools.wraps(function)
    def wrapped(x):
        return 2 * function(x)

    return wrapped


@twice
def third(x):
    return x / 3


class Half:
    def of(self, x):
        return x / 2
"""

LESSON = r"""# 7 · A made lesson

- **You will** see a square.
- **You need** nothing.
- **Time** 1 minute.

The square of $\mathbf x_i$ and $\mathbf y_i$ is

$$
q(x) = x^2 \qquad (7.1)
$$

and its slope is

$$
q'(x) = 2 x \qquad (7.2)
$$

> [!TIP]
> **Predict first.** Is the square of a half larger than a half, or smaller?

```python
def square(x):
    return x**2                                        # (7.1)


print(f"{square(0.5):.4f}")
```

```text
0.2500
```

So *smaller* was the right prediction, by (7.1).

<details>
<summary>Drawing code</summary>

```python
import matplotlib.pyplot as plt
import numpy as np

x = np.linspace(0, 2, 50)
plt.plot(x, square(x), label="square")
plt.xlabel("x")
plt.legend()
plt.show()
```

</details>

![A parabola that rises from the origin to four at x = 2.](figures/07_made.png)

The package has a third, and a half.

```python source=made_module:third
@twice
def third(x):
    return x / 3
```

```python source=made_module:Half.of
def of(self, x):
    return x / 2
```

## Exercises

1. **Warm-up.** What is the square of 3?

<details>
<summary>Solution 1</summary>

Nine, as the code of (7.1) says.

```python
assert square(3) == 9
print(square(3))
```

```text
9
```

</details>

## Summary

| idea | equation | code |
|---|---|---|
| square | (7.1) | `square` |

## References

- None.
"""


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Folder with the made-up lesson, its figure, and the module that it quotes."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "made_module.py").write_text(MODULE)
    path = folder / "07_made.md"
    path.write_text(LESSON)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        _, remaining = update(path)
        sys.modules.pop("made_module")
    assert remaining == []
    assert path.read_text() == LESSON  # only the figure was missing
    return folder


@pytest.fixture
def made(made_once, tmp_path, monkeypatch):
    """Path of a copy of the made-up lesson, which a test may change."""
    shutil.copytree(made_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "made_module", raising=False)
    return tmp_path / "07_made.md"


def change(path, old, new):
    """Replace `old`, which occurs once on the page, and return its line number."""
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1


def only_problem(path):
    problems = find_problems(path)
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def lessons(*arguments, modules=""):
    """Run `python -m lessons` in a process that can import from the folder `modules`."""
    command = [sys.executable, "-m", "lessons", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(modules)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_the_unchanged_lesson_passes(made):
    assert find_problems(made) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    thinned_rows(
        [
            ("0.2500\n```", "0.2501\n```", "-0.2501\n    +0.2500"),
            ("0.2500\n```", "0.250\n```", "-0.250\n    +0.2500"),
            (
                "    return x / 3\n",
                "    return x / 4\n",
                "-    return x / 4\n    +    return x / 3",
            ),
            ("```text\n9\n```\n", "", "no text follows"),
            ("print(square(3))", "square(3)", "prints nothing"),
            ("square(3) == 9", "square(3) == 8", "AssertionError"),
            ("print(square(3))", "print(sqare(3))", "NameError"),
            ("print(square(3))", "print(square(3)))", "SyntaxError"),
            ("made_module:third", "made_module:fourth", "has no attribute 'fourth'"),
            ("made_module:third", "made_mdule:third", "No module named 'made_mdule'"),
            ("plt.show()\n", "\n", "not shown"),
            ("![A parabola that rises", "A parabola that rises", "0 images follow"),
            ("The package has", "```text\n1\n```\n\nThe package has", "prints nothing"),
            ("## Exercises", "```text\n1\n```\n\n## Exercises", "follows no block"),
            ("## Exercises", "![x](figures/07_made.png)\n\n## Exercises", "follows no block"),
            ("The package has", "  ```text\n", "indented fence"),
            ("```python source=made_module:third", "```python run=no", "write ```python"),
            ("</details>\n\n## Summary", "```python\n", "never closed"),
            ("return x**2   ", "return x**2" + 30 * " ", "columns"),
        ],
        3,
    ),
)
def test_a_wrong_page_fails_and_names_the_line(made, old, new, message):
    line = change(made, old, new)
    problem = only_problem(made)
    assert message in str(problem)
    assert abs(problem.line - line) <= 5, f"line {problem.line} for a change in line {line}"


def test_a_moved_curve_fails(made):
    change(made, "square(x), label", "1.02 * square(x), label")
    problem = only_problem(made)
    assert "Line2D y: mean, std, first, last" in str(problem)
    assert made.read_text().splitlines()[problem.line - 1].startswith("![A parabola")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('label="square"', 'label="Square"', "texts were ['x', 'square'], now ['x', 'Square']"),
        ("plt.legend()", "plt.axhline(1)\nplt.legend()", "artists were"),
        ("np.linspace(0, 2, 50)", "np.linspace(0, 2, 51)", "artists were"),
        ("plt.legend()", "plt.legend()\nplt.figure()", "2 figures"),
    ],
)
def test_another_figure_fails(made, old, new, message):
    change(made, old, new)
    assert message in str(only_problem(made))


def test_rounding_noise_in_a_curve_passes(made):
    change(made, "square(x), label", "square(x) * (1 + 1e-6 * np.sin(99 * x)), label")
    assert find_problems(made) == []


@pytest.mark.slow
def test_a_missing_and_a_foreign_picture_fail(made):
    picture = made.parent / "figures" / "07_made.png"
    picture.unlink()
    assert "does not exist" in str(only_problem(made))
    Image.new("RGB", (4, 4)).save(picture)
    assert "no summary" in str(only_problem(made))


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 100, -200])
def test_update_mends_a_damaged_picture(left, made):
    picture = made.parent / "figures" / "07_made.png"
    picture.write_bytes(picture.read_bytes()[:left])
    assert "no summary" in str(only_problem(made))
    assert len(update(made)[0]) == 1
    assert find_problems(made) == []


@pytest.mark.slow
def test_the_summary_sees_what_a_logarithmic_axis_shows():
    def summary(floor):
        axes = figures.plt.figure().add_subplot()
        axes.loglog([1, 10, 100], [1, 1e-3, floor])
        [picture] = figures.take_figures()
        return picture.summary

    assert figures.compare(summary(1e-6), summary(1.01e-6)) == []
    assert figures.compare(summary(1e-6), summary(2e-6)) != []


@pytest.mark.slow
@pytest.mark.parametrize(
    "draw",
    [
        lambda axes, a: axes.imshow(a),
        lambda axes, a: axes.pcolormesh(a),
        lambda axes, a: axes.scatter(a[0], a[1]),
        lambda axes, a: axes.bar(range(4), a[0]),
        lambda axes, a: axes.quiver(a[0], a[1]),
        lambda axes, a: axes.contour(a),
        lambda axes, a: axes.fill_between(range(4), a[0]),
        lambda axes, a: axes.errorbar(range(4), a[0], a[1]),
        lambda axes, a: axes.hist(a[0]),
        lambda axes, a: axes.text(0, 0, f"{a[0, 0]:.3f}"),
    ],
)
def test_each_kind_of_artist_is_compared(draw):
    def summary(array):
        draw(figures.plt.figure().add_subplot(), array)
        [picture] = figures.take_figures()
        return json.loads(json.dumps(picture.summary))

    array = np.random.default_rng(0).random((4, 4)) + 1
    moved = array * np.linspace(1.1, 1.5, 4)[:, None] ** np.arange(1, 5)
    assert figures.compare(summary(array), summary(array)) == []
    assert figures.compare(summary(array), summary(moved)) != []


# ---- the form of a page


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r"$\mathbf x_i$ and", r"$\mathbf{x}_i$, $y_{ij}$ and", "changes"),
        ("q(x) = x^2 ", r"q(x)\, = x^2 ", "eaten by Markdown"),
        ("q(x) = x^2 ", "q(x)\n+ x^2 ", "changes"),
        ("q(x) = x^2 ", r"q(x) = \begin{matrix} x \end{matrix} ", "mathtext cannot render"),
        ("q(x) = x^2 ", r"q(x) = \begin{pmatrix} \frac{x \end{pmatrix} ", "mathtext cannot render"),
        ("q(x) = x^2 ", r"q(x) \tag{1} = x^2 ", "not every renderer"),
        ("q(x) = x^2 ", "q(x) < x^2 ", r"write \lt"),
        ("is\n\n$$\nq(x)", "is\n$$\nq(x)", "blank line"),
        (r"and $\mathbf y_i$", r"and $\mathbf y_i", "without its partner"),
        (r"and $\mathbf y_i$", r"and $\mathbf y_i$s", "touches"),
        ("## Summary", "## Summary of $x$", "a heading must not contain math"),
        ("(7.2)", "(7.3)", "(7.3) should be (7.2)"),
        ("prediction, by (7.1)", "prediction, by (7.9)", "no equation (7.9)"),
        ("x**2                                        # (7.1)", "x**2  # (7.3)", "(7.3)"),
        ("prediction, by (7.1)", "prediction, by (99.1)", "no equation (99.1)"),
        ("![A parabola that rises from the origin to four at x = 2.]", "![It.]", "alt text"),
        ("(figures/07_made.png)", "(figures/07_other.png)", "does not exist"),
        ("import numpy as np", "import numpy as np, scipy", "must not import scipy"),
        ("- **You need** nothing.\n", "", "You need"),
        ("\n1. **W", "\n2. **W", "have solutions"),
        ("1. **Warm-up.** What", "1. **Standard.** What", "should be a warm-up"),
        ("1. **Warm-up.** What", "1. What", "begins with **Warm-up.**"),
        ("The package has", "Obviously the package has", "does not help"),
    ],
)
def test_an_ill_formed_page_fails_and_names_the_line(made, old, new, message):
    usual = {text.split(": ", 1)[1] for text in lesson_rules.problems(made)}
    line = change(made, old, new)
    found = [text for text in lesson_rules.problems(made) if text.split(": ", 1)[1] not in usual]
    matching = [text for text in found if message in text]
    assert matching, found
    _, named, _ = matching[0].split(":", 2)
    assert abs(int(named) - line) <= 3, f"{matching[0]} for a change in line {line}"


def test_an_equation_that_moved_keeps_its_number(made, monkeypatch):
    """Lesson 7 has (7.2) and no (7.1), which moved to lesson 8; it takes in (6.30) instead."""
    monkeypatch.setattr(lesson_rules, "MOVED", {("7", 1): "8", ("6", 30): "7"})
    change(made, r"x^2 \qquad (7.1)", r"x^2 \qquad (6.30)")
    assert not [text for text in lesson_rules.problems(made) if "numbers run" in text]
    change(made, r"x^2 \qquad (6.30)", r"x^2 \qquad (6.31)")
    assert [text for text in lesson_rules.problems(made) if "(6.31) should be (6.30)" in text]
    change(made, r"x^2 \qquad (6.31)", "x^2")
    missing = "07_made.md:1: equation (6.30) moved to this page but is not here"
    assert missing in lesson_rules.problems(made)


def test_every_equation_that_moved_is_found_by_its_number():
    """In the lesson that has it now, and from any page that refers to it."""
    for (lesson, number), there in lesson_rules.MOVED.items():
        page = next(path for path in PAGES if path.name.startswith(f"{there}_"))
        assert f"\\qquad ({lesson}.{number})" in page.read_text("utf-8")
        assert (lesson, number) in lesson_rules._numbers_of(lesson)


def test_a_prediction_without_an_answer_is_ill_formed(made):
    change(made, "the right prediction", "right")
    line = made.read_text().split("**Predict first")[0].count("\n") + 1
    message = "the text never mentions the prediction by that word"
    assert f"07_made.md:{line}: {message}" in lesson_rules.problems(made)


@pytest.mark.parametrize("between", ["", "## 7.2\n\n## 7.3\n\n"])
def test_a_prediction_may_be_answered_two_sections_later(made, between):
    change(made, "So *smaller*", f"{between}So *smaller*")
    assert not [text for text in lesson_rules.problems(made) if "prediction" in text]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("So *smaller*", "## 7.2\n\n## 7.3\n\n## 7.4\n\nSo *smaller*"),
        ("So *smaller* was the right prediction", "There are more predictions"),
    ],
)
def test_a_late_or_vague_answer_to_a_prediction_is_ill_formed(made, old, new):
    change(made, old, new)
    line = made.read_text().split("**Predict first")[0].count("\n") + 1
    message = "no sentence on the prediction names the correct one within two sections"
    assert f"07_made.md:{line}: {message}" in lesson_rules.problems(made)


def test_a_repeated_prediction_may_be_answered_later(made):
    again = "> [!TIP]\n> **Predict first.** Again: is it larger, or smaller?\n\n"
    change(made, "So *smaller*", 3 * "## 7.2\n\n" + again + "So *smaller*")
    assert not [text for text in lesson_rules.problems(made) if "prediction" in text]


def test_the_made_page_is_wrong_only_in_its_size(made):
    wrong = [text for text in lesson_rules.problems(made) if "a lesson has" not in text]
    assert [text.split(": ", 1)[1] for text in wrong] == [
        "there should be 3 to 6 exercises, numbered from 1, not ['1']",
    ]


# ---- the commands


def test_update_repairs_texts_quotes_and_figures_and_nothing_else(made):
    change(made, "0.2500\n```", "0.7\n0.8\n```")
    change(made, "    return x / 3\n", "    return x\n")
    change(made, "\n```text\n9\n```\n", "")
    picture = made.parent / "figures" / "07_made.png"
    picture.unlink()
    repaired, remaining = update(made)
    assert (len(repaired), remaining) == (4, [])
    assert made.read_text() == LESSON
    assert find_problems(made) == []


def test_update_leaves_what_it_cannot_repair(made):
    change(made, "square(3) == 9", "square(3) == 8")
    before = made.read_text()
    _, remaining = update(made)
    assert "AssertionError" in str(remaining[0])
    assert made.read_text() == before


def test_a_page_leaves_the_settings_of_matplotlib_alone(made):
    before = dict(figures.matplotlib.rcParams)
    change(made, 'plt.xlabel("x")', 'plt.xlabel("x"); plt.rcParams["lines.linewidth"] = 9')
    find_problems(made)
    assert dict(figures.matplotlib.rcParams) == before


TITLE = "7 · A made lesson"


def test_run_prints_headings_and_outputs_and_writes_the_figures(made, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(made.parent))
    assert main(["run", str(made)]) == 0
    lines = capsys.readouterr().out.splitlines()
    figure = lines.pop(4)
    assert lines == ["", TITLE, "-" * len(TITLE), "0.2500", "", "Solution 1", "----------", "9"]
    assert Path(figure.removeprefix("figure: ")).read_bytes().startswith(b"\x89PNG")


def test_run_leaves_out_a_heading_with_nothing_below(made, capsys):
    change(made, "print(square(3))\n", "")
    change(made, "plt.show()\n", "plt.close()\n")
    assert main(["run", str(made)]) == 0
    assert capsys.readouterr().out.splitlines() == ["", TITLE, "-" * len(TITLE), "0.2500"]


def test_an_interactive_run_goes_on_with_the_names_of_the_page(made, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(made.parent))
    monkeypatch.setattr("sys.stdin", io.StringIO("square(1.5)\nplt.plot([1]); plt.show()\n"))
    assert main(["run", str(made), "--interactive"]) == 0
    said = capsys.readouterr()
    assert "square" in said.err and "Ctrl-D ends the session" in said.err
    assert "2.25" in said.out and said.out.count("figure: ") == 2


def test_only_run_is_interactive(capsys):
    with pytest.raises(SystemExit):
        main(["check", "01", "--interactive"])
    assert "--interactive goes with run" in capsys.readouterr().err


@pytest.mark.slow
def test_a_traceback_of_run_names_the_line_of_the_page(made):
    line = change(made, "return x**2 ", "return y**2 ")
    done = lessons("run", made)
    assert done.returncode == 1
    assert f'{made.name}", line {line}, in square' in done.stderr
    assert "return y**2" in done.stderr
    assert "execute.py" not in done.stderr


def test_what_cannot_be_read_or_written_is_told(made, capsys, monkeypatch):
    monkeypatch.chdir(made.parent)
    made.with_suffix(".ipynb").symlink_to("no folder/x.ipynb")
    assert main(["notebook", made.name]) == 1
    assert capsys.readouterr().err == "cannot use 07_made.ipynb: No such file or directory\n"
    made.write_bytes(b"# 7\n\xff")
    assert main(["check", made.name]) == 1
    assert "07_made.md is not UTF-8 text" in capsys.readouterr().err


@pytest.mark.slow
def test_check_and_update_by_command(made):
    assert lessons("check", made, modules=made.parent).returncode == 0
    line = change(made, "0.2500\n```", "0.2501\n```")
    done = lessons("check", made, modules=made.parent)
    assert done.returncode == 1
    assert f"{made.name}:{line}: " in done.stdout
    assert lessons("update", made, modules=made.parent).returncode == 0
    assert made.read_text() == LESSON


@pytest.mark.slow
def test_several_pages_run_in_processes_of_their_own(tmp_path):
    setter, reader, wrong = (tmp_path / f"0{n}_page.md" for n in (1, 2, 3))
    leaked = 'import builtins\nprint(hasattr(builtins, "leak"))'
    setter.write_text("```python\nimport builtins\n\nbuiltins.leak = 1\n```\n")
    reader.write_text(f"```python\n{leaked}\n```\n\n```text\nFalse\n```\n")
    wrong.write_text("```python\nprint(1)\n```\n")
    assert lessons("check", setter, reader).returncode == 0
    done = lessons("check", wrong, setter)
    assert done.returncode == 1
    assert "03_page.md:4: the block printed, but no text follows it" in done.stdout
    assert "01_page.md agrees with its code" in done.stdout


@pytest.mark.slow
@needs_mpi
def test_a_page_that_starts_processes_leaves_standard_input_alone():
    """The lesson stands in a script whose next command reads what is left."""
    line = [sys.executable, "-m", "lessons", "run", "17"]
    read, write = os.pipe()
    os.write(write, b"one\ntwo\n")
    os.close(write)
    with open(read, "rb") as left:
        done = subprocess.run(line, cwd=ROOT, stdin=left, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert left.read() == b"one\ntwo\n"


def test_the_list_names_number_title_and_time(capsys):
    assert main([]) == 0
    listed = capsys.readouterr().out
    numbered = [path for path in PAGES if path.name[0] != "A"]
    assert listed.count("You will: ") == listed.count("Time: ") == len(numbered)
    assert "01  A derivative is a slope you can pass on" in listed
    assert "A1  Notation" in listed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "99"], "there is no lesson 99; there are 01"),
        (["check", "no.md"], "there is no page no.md"),
        (["run"], "run takes one lesson"),
        (["web", "01"], "web takes no lesson"),
        (["walk"], "invalid choice"),
    ],
)
def test_wrong_use_exits_with_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name}" in shown for name in ("run", "check", "update", "notebook", "web"))


def test_a_notebook_that_a_reader_may_have_changed_is_kept(made, capsys, monkeypatch):
    monkeypatch.chdir(made.parent)
    notebook = made.with_suffix(".ipynb")
    notebook.write_text("mine")
    assert main(["notebook", made.name]) == 1
    assert "07_made.ipynb already exists: rename or remove it" in capsys.readouterr().err
    assert notebook.read_text() == "mine"


def test_a_notebook_runs_and_holds_outputs_and_folded_solutions(made):
    notebook = json.loads(make_notebook(made))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    words = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")

    printed = [output["text"] for cell in code for output in cell["outputs"] if "text" in output]
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        namespace = {}
        for cell in code:
            exec(cell["source"].replace("plt.show()", "plt.close()"), namespace)
    assert "".join(printed) == stdout.getvalue() == "0.2500\n9\n"

    assert [len(cell["outputs"]) for cell in code] == [1, 1, 1]
    assert "image/png" in code[1]["outputs"][0]["data"]
    folded = [cell["metadata"].get("jupyter", {}).get("source_hidden", False) for cell in code]
    assert folded == [False, True, True]
    assert words.count("<details>") == words.count("</details>") == 1
    assert "Nine, as the code" in words
    assert "*Figure:* A parabola that rises from the origin to four at x = 2.\n" in words
    assert "```python\n@twice\ndef third" in words and "```text" not in words and "![" not in words
