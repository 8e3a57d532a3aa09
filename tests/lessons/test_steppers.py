"""Steppers: figures become SVG, differences are found, and `update` writes the data."""

import base64
import io
import json
import re
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from thinning import thinned

from lessons.machinery import execute, steppers
from lessons.machinery.check import find_problems, update

PAGE = """# 7

```python
import matplotlib.pyplot as plt


def slide(n, way):
    axes = plt.figure().add_subplot()
    axes.plot(range(n + 1), color="C0" if way == "up" else "C1")


fig, axes = plt.subplots()
axes.plot([0, 1])
fig.stepper = slide, {"n": range(1, 3), "way": ("up", "down")}
plt.show()
```

![A line that rises from the origin to one.](figures/07_made.png)
"""


@pytest.fixture(autouse=True)
def lessons_style():
    with execute.stage([]):
        yield


def frames(recorded):
    """Return the frames of a stepper, as XML."""
    recorded = json.loads(recorded)
    pieces, size = recorded["pieces"], " ".join(map(str, recorded["size"]))
    root = f'<svg viewBox="0 0 {size}" xmlns:xlink="link">'
    joined = ("".join(pieces[number] for number in frame) for frame in recorded["frames"])
    return [ElementTree.fromstring(f"{root}{frame}</svg>") for frame in joined]


def drawn(draw):
    """Return a stepper of one frame, 720 × 288 points, with both axes from 0 to 1, as XML."""

    def frame(_):
        axes = plt.figure(figsize=(10, 4)).add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
        draw(axes)

    [made] = frames(steppers.record(frame, {"only": [1]}))
    return made


def test_a_line_is_a_path_in_points_with_y_downwards():
    made = drawn(lambda axes: axes.plot([0, 0.5, 1], [0, 0.25, 1], "C1", alpha=0.55))
    assert made.get("viewBox") == "0 0 720 288"
    [line] = made.findall(".//path[@d='M 0 288 L 360 216 L 720 0 ']")
    assert "stroke: #d55e00" in line.get("style") and "stroke-opacity: 0.55" in line.get("style")


def test_mid_grey_becomes_the_ink_of_the_page():
    def draw(axes):
        axes.plot([0, 1], [0, 1], "o-", color="0.5")
        axes.set_title("0.7f7f7f")

    made = drawn(draw)
    styles = " ".join(each.get("style", "") for each in made.iter())
    assert "7f7f7f" not in styles and "808080" not in styles
    assert "stroke: currentColor" in made.find(".//path[@d='M 0 288 L 720 0 ']").get("style")
    assert [text.text for text in made.iter("text")] == ["0.7f7f7f"]


def test_texts_stay_texts_with_every_digit_in_the_letters_of_the_page():
    def draw(axes):
        axes.plot([0, 1], label="a > b & c")
        axes.set(title="L = 0.12345", xlabel="across", xticks=[0.5], xticklabels=['"in"'])
        axes.legend()

    texts = list(drawn(draw).iter("text"))
    assert sorted(text.text for text in texts) == ['"in"', "L = 0.12345", "a > b & c", "across"]
    assert all("font-size" in text.get("style") for text in texts)
    assert not any("font-family" in text.get("style") for text in texts)


def test_what_a_frame_refers_to_is_in_it_once():
    def draw(axes):
        axes.plot([0.5, 7], [0.5, 7], "o", label="dots")
        axes.scatter([0.2, 0.4], [0.5, 0.5], s=9, c=["C0", "C1"])
        axes.legend()

    made = drawn(draw)
    names = [each.get("id") for each in made.iter() if each.get("id")]
    used = [use.get("{link}href") for use in made.iter("use")]
    used += [each.get("clip-path")[4:-1] for each in made.iter() if each.get("clip-path")]
    assert len(used) > 5 and {name[1:] for name in used} == set(names)
    assert len(set(names)) == len(names)


def test_an_image_keeps_its_own_pixels():
    values = np.array([[0.0, 1.0], [0.5, 0.25]])
    made = drawn(lambda axes: axes.imshow(values, cmap="gray", vmin=0, vmax=1))
    png = base64.b64decode(made.find(".//image").get("{link}href").partition(",")[2])
    with Image.open(io.BytesIO(png)) as picture:
        np.testing.assert_allclose(np.asarray(picture)[..., 0] / 255, values, atol=0.01)


def test_the_text_of_matplotlib_3_8_gives_the_same_pieces(monkeypatch):
    made = steppers.record(lambda _: plt.figure().text(0.5, 0.5, "here"), {"only": [1]})
    write, family = Figure.savefig, r"font-size: (\w+); font-family: [^;\"]*; ([^\"]*)"

    def write_as_before(figure, file, **options):
        write(figure, file, **options)
        before = re.sub(family, r"\2; font: \1 'DejaVu Sans', serif", file.getvalue())
        assert "; font: 10px 'DejaVu Sans', " in before
        file.seek(0)
        file.write(before)
        file.truncate()

    monkeypatch.setattr(Figure, "savefig", write_as_before)
    assert steppers.record(lambda _: plt.figure().text(0.5, 0.5, "here"), {"only": [1]}) == made


def record(height=0.5, colour="C0", words="here", opacity=1.0, width=1.1, grey=0.5):
    def frame(way):
        axes = plt.figure(figsize=(4, 4)).add_subplot(xlim=(0, 1), ylim=(0, 1))
        axes.plot([0, 1], [height, height], color=colour, alpha=opacity, linewidth=width)
        axes.text(0.5, 0.5, words)
        axes.imshow([[grey]], vmin=0, vmax=1, extent=(0, 0.1, 0, 0.1))

    return steppers.record(frame, {"way": ("up", "down")})


@pytest.mark.parametrize(
    "change",
    thinned(
        [
            {"height": 0.52},
            {"colour": "C1"},
            {"words": "there"},
            {"words": "here2"},
            {"opacity": 0.9},
            {"width": 1.3},
            {"grey": 0.6},
        ]
    ),
)
def test_a_change_that_can_be_seen_is_found(change):
    assert steppers.compare(record(), record()) == []
    assert len(steppers.compare(record(), record(**change))) == 1


def test_rounding_noise_is_no_change():
    noisy = record(height=0.5 + 1e-4, width=1.1 + 1e-2, grey=0.5 + 1e-3)
    assert steppers.compare(record(), noisy) == []


def test_a_lost_frame_is_found():
    whole = {"sliders": [], "pieces": [], "frames": [[], []]}
    less = json.dumps(whole | {"frames": [[]]})
    assert steppers.compare(less, json.dumps(whole)) == ["there were 1 frames, now 2"]


def test_frames_are_in_the_order_of_the_sliders_and_share_their_pieces():
    def frame(n, way):
        plt.figure().text(0.5, 0.5, f"{n} {way}")
        plt.gcf().text(0.5, 0.9, "same")

    recorded = steppers.record(frame, {"n": (1, 2), "way": ("up", "down")})
    made = json.loads(recorded)
    assert made["sliders"] == [["n", ["1", "2"]], ["way", ["up", "down"]]]
    words = [[text.text for text in one.iter("text")] for one in frames(recorded)]
    assert words == [[state, "same"] for state in ("1 up", "1 down", "2 up", "2 down")]
    assert len([piece for piece in made["pieces"] if "same" in piece]) == 1


@pytest.mark.slow
def test_update_writes_a_stepper_and_check_finds_what_moved(tmp_path):
    page, data = tmp_path / "07_made.md", tmp_path / "figures" / "07_made.json"
    page.write_text(PAGE)
    assert update(page)[1] == []
    assert find_problems(page) == []
    assert len(json.loads(data.read_text())["frames"]) == 4
    for damage in ('{"size": [', "{}", "[]", data.read_text().replace("[0,", "[1234,")):
        data.write_text(damage)
        [problem] = find_problems(page)
        assert "the file is damaged" in str(problem)
    assert len(update(page)[0]) == 1
    page.write_text(PAGE.replace("range(n + 1)", "range(n + 2)"))
    [problem] = find_problems(page)
    assert "07_made.json is not what the stepper draws" in str(problem)
    page.write_text(PAGE.replace("fig.stepper = slide,", "unused ="))
    [problem] = find_problems(page)
    assert "has no stepper" in str(problem)


def test_an_error_in_a_stepper_names_its_line(tmp_path):
    page = tmp_path / "07_made.md"
    page.write_text(PAGE.replace("range(n + 1)", "range(n + one)"))
    problems = find_problems(page)
    assert "NameError" in str(problems[0]) and problems[0].line == 9
