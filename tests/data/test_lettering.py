"""Test class names in figures: any script, any length, no formulas, no overlap."""

import matplotlib
import pytest
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.font_manager import FontProperties

from minicaps.data import lettering
from minicaps.data.lettering import fit, legible, names_as_they_are, short


def width(text, size):
    """Return the width of the longest line in inches."""
    measure, font = RendererAgg(1, 1, 72).get_text_width_height_descent, FontProperties(size=size)
    with matplotlib.rc_context({"text.parse_math": False}):
        return max(measure(row, font, False)[0] for row in text.split("\n")) / 72


@pytest.fixture
def only_the_usual_font(monkeypatch):
    """Pretend that only Matplotlib's default font is installed."""
    from matplotlib.font_manager import findfont, get_font

    characters = get_font(findfont("DejaVu Sans")).get_charmap()
    font_with = {ord(c): "DejaVu Sans" for c in map(chr, characters)}
    monkeypatch.setattr(lettering, "_font_with", lambda c: font_with.get(ord(c)))


NAMES = ["golden retriever", "yorkshire terrier", "$5", "10$ $^", "a" * 100, "W" * 30, "x"]
NAMES += ["Ελλάδα " * 9, "West_Highland_white_terrier", "i" * 200, "wide — dashes — and spaces"]


@pytest.mark.parametrize("inches", [0.4, 0.9, 1.5])
@pytest.mark.parametrize("lines", [1, 2, 3])
def test_names_fit_into_their_place(inches, lines):
    for name in NAMES:
        text = fit(name, inches, 9, lines)
        assert width(text, 9) <= inches and text.count("\n") < lines and text


def test_a_name_is_wrapped_before_it_is_shortened():
    assert fit("golden retriever", 2, 9) == "golden retriever"
    assert fit("golden retriever", 0.9, 9, lines=2) == "golden\nretriever"
    assert "…" in fit("golden retriever", 0.9, 9)


def test_names_are_shortened_so_that_they_stay_apart():
    assert short("cat", 3) == "cat"
    assert short("class name 12", 12) == "class n…e 12"
    for most in range(4, 20):
        assert len(short("x" * 30, most)) == most
    names, note = legible(["x" * 50 + "a" + "y" * 50, "x" * 50 + "b" + "y" * 50, "z"])
    assert names[0].startswith("0: x") and names[1].startswith("1: x") and names[2] == "z"
    assert note is None


@pytest.mark.usefixtures("only_the_usual_font")
def test_names_without_a_font_are_replaced():
    given = ["cat", "猫", "हिन्दी", "🐶", "ＡＢＣ", "naïve", "a\nb", "\udcff", "$x$", "👩‍🌾 x"]
    names, note = legible(given)
    assert names[:3] == ["cat", "class 1", "class 2"]
    assert names[3:7] == ["dog face", "ABC", "naïve", "a b"]
    assert names[7:] == ["class 7", "$x$", "woman ear of rice x"]
    assert "'class 1' instead of the class name '猫' (and 5 more)" in note
    assert "install a font" in note
    assert legible(["猫", "b"])[1].count("more") == 0


def test_scripts_that_must_be_shaped_need_a_version_that_does(monkeypatch):
    """Letters that are not joined, or in the wrong direction, would read wrong."""
    monkeypatch.setattr(matplotlib, "__version_info__", (3, 8, 0))
    assert legible(["قط", "שלום", "cat"])[0] == ["class 0", "class 1", "cat"]
    monkeypatch.setattr(matplotlib, "__version_info__", (3, 11, 0))
    assert legible(["قط", "שלום"])[0] == ["قط", "שלום"]


@pytest.mark.filterwarnings("error")
def test_letters_come_from_an_installed_font_that_has_them(tmp_path):
    """Test with a font bundled with Matplotlib in place of a system font."""
    from matplotlib.figure import Figure

    def draw(path, names):
        figure = Figure()
        figure.suptitle(names[0])
        figure.savefig(path)

    name = "\N{COMBINING ENCLOSING CIRCLE}$"
    with pytest.raises(UserWarning, match="missing from font"):
        draw(tmp_path / "boxes.png", [name])
    names_as_they_are(draw)(tmp_path / "letters.png", [name])
    assert (tmp_path / "letters.png").exists()
