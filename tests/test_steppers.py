"""Steppers: what is drawn becomes SVG, what differs is found, `update` writes it by the page."""

import base64
import io
import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from lessons import execute, steppers
from lessons.check import find_problems, update

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


def drawn(draw):
    """The elements of a stepper of one frame, 720 × 288 points, whose axes are 0 to 1 both ways."""

    def frame(_):
        axes = plt.figure(figsize=(10, 4)).add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        draw(axes)

    recorded = json.loads(steppers.record(frame, {"only": [1]}))
    assert recorded["size"] == [720, 288]
    return [recorded["elements"][number] for number in recorded["frames"][0]]


def test_a_line_is_a_path_in_points_with_y_downwards():
    [line] = drawn(lambda axes: axes.plot([0, 0.5, 1], [0, 0.25, 1], "C1--", linewidth=2))
    assert line[0] == "path" and line[1]["d"] == "M0,288 360,216 720,0"
    assert line[1]["stroke"] == "#d55e00" and line[1]["fill"] == "none"
    assert line[1]["stroke-width"] == "2" and line[1]["stroke-dasharray"]


def test_a_line_ends_where_the_axes_end():
    [line] = drawn(lambda axes: axes.plot([0.5, 2.5], [0.5, 0.5]))
    assert line[1]["d"].startswith("M360,144 72")


def test_markers_and_scatters_are_circles_where_the_points_are_and_none_outside():
    [marker] = drawn(lambda axes: axes.plot([0.5, 7], [0.5, 7], "o", color="0.5", markersize=8))
    assert marker[0] == "circle"
    assert [marker[1][name] for name in ("cx", "cy", "r")] == ["360", "144", "4"]
    assert marker[1]["fill"] == "currentColor"  # the mid-grey ink: light or dark as the page
    look = {"s": [16, 64, 1], "color": "r", "alpha": 0.5}
    dots = drawn(lambda axes: axes.scatter([0.25, 0.5, 9], [0.5, 0.5, 9], **look))
    assert [(dot[1]["cx"], dot[1]["r"]) for dot in dots] == [("180", "2"), ("360", "4")]
    assert dots[0][1]["fill"] == "#ff0000" and dots[0][1]["fill-opacity"] == "0.50"


def test_texts_ticks_labels_and_legends_are_there_and_ticks_out_of_view_are_not():
    def draw(axes):
        axes.plot([0, 1], label="curve")
        axes.set(title="head", xlabel="across", xticks=[0.5, 3], xticklabels=["in", "out"])
        axes.set_xlim(0, 1)
        axes.text(0.5, 0.5, "inside")
        axes.legend()

    words = [text for tag, _, text in drawn(draw) if tag == "text"]
    assert sorted(words) == ["across", "curve", "head", "in", "inside"]


def test_an_image_keeps_its_pixels_and_its_place():
    values = np.array([[0.0, 1.0], [0.5, 0.25]])

    def draw(axes):
        axes.imshow(values, cmap="gray", vmin=0, vmax=1, extent=(0.25, 0.75, 0, 1), aspect="auto")
        axes.set(xlim=(0, 1), ylim=(0, 1))

    [picture] = drawn(draw)
    place = [picture[1][name] for name in ("x", "y", "width", "height")]
    assert place == ["180", "0", "360", "288"]
    png = base64.b64decode(picture[1]["href"].removeprefix("data:image/png;base64,"))
    pixels = np.asarray(Image.open(io.BytesIO(png)))[..., 0] / 255
    np.testing.assert_allclose(pixels, values, atol=0.01)


def test_what_cannot_be_shown_is_named():
    with pytest.raises(steppers.StepperError, match="cannot show a Quiver"):
        drawn(lambda axes: axes.quiver(0, 0, 1, 1))


def record(height=0.5, colour="C0", words="here", opacity=1.0, grey=0.5):
    def frame(way):
        axes = plt.figure(figsize=(4, 4)).add_subplot(xlim=(0, 1), ylim=(0, 1))
        axes.plot([0, 1], [height, height], color=colour, alpha=opacity)
        axes.text(0.5, 0.5, words)
        axes.imshow([[grey]], vmin=0, vmax=1, extent=(0, 0.1, 0, 0.1))

    return steppers.record(frame, {"way": ("up", "down")})


@pytest.mark.parametrize(
    "change",
    [
        {"height": 0.52},
        {"colour": "C1"},
        {"words": "there"},
        {"words": "here2"},
        {"opacity": 0.9},
        {"grey": 0.6},
    ],
)
def test_a_change_that_can_be_seen_is_found(change):
    assert steppers.compare(record(), record()) == []
    assert len(steppers.compare(record(), record(**change))) == 1


def test_rounding_noise_is_no_change():
    noisy = record(height=0.5 + 1e-4, grey=0.5 + 1e-3)
    assert steppers.compare(record(), noisy) == []


def test_a_lost_frame_is_found():
    whole = {"sliders": [], "elements": [], "frames": [[], []]}
    less = json.dumps(whole | {"frames": [[]]})
    assert steppers.compare(less, json.dumps(whole)) == ["there were 1 frames, now 2"]


def test_frames_are_in_the_order_of_the_sliders_and_share_their_elements():
    def frame(n, way):
        plt.figure().text(0.5, 0.5, f"{n} {way}")
        plt.gcf().text(0.5, 0.9, "same")

    made = json.loads(steppers.record(frame, {"n": (1, 2), "way": ("up", "down")}))
    assert made["sliders"] == [["n", ["1", "2"]], ["way", ["up", "down"]]]
    words = [[made["elements"][k][2] for k in numbers] for numbers in made["frames"]]
    assert [one[0] for one in words] == ["1 up", "1 down", "2 up", "2 down"]
    assert len({numbers[1] for numbers in made["frames"]}) == 1


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
