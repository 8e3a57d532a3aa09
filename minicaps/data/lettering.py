"""Class names in figures: literal, in fonts that have their characters, and fitted to their place.

Matplotlib is imported only when a figure is drawn.
"""

import functools
import logging
import re
import unicodedata
from collections.abc import Sequence
from contextlib import contextmanager

NARROWEST = 0.25  # width of narrow letters as a fraction of the font size
POINTS = 72  # in an inch
LONGEST = 24  # characters in a name
TOLD_APART = 14  # characters after which two shortened names must differ
# Fonts of Linux, Windows and macOS that are tried before all other installed fonts
OTHER_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("Microsoft YaHei", "Malgun Gothic", "PingFang SC", "Hiragino Sans GB", "Arial Unicode MS"),
    *("Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji", "Segoe UI Emoji"),
)
UNUSABLE = ("Color", "Last", "Unicode BMP Fallback")  # bitmaps, and fonts of boxes
# Scripts that read wrong unless letters are joined or reordered: from Hebrew and Arabic to Myanmar
SHAPED = re.compile("[\u0590-\u0dff\u0f00-\u109f\u1780-\u17ff\ufb1d-\ufdff\ufe70-\ufefc]")
SHAPING = (3, 11)  # the first version of Matplotlib that does so
EMOJI_STYLE = "\ufe0f"  # an invisible character after many emoji


def short(text: str, most: int = LONGEST) -> str:
    """Shorten a text to at most `most` characters by replacing the middle with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - most // 3 - 1]}…{text[-(most // 3) :]}"


def legible(class_names: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the names of all classes as figures can draw them, and a note on replaced names.

    Names that no installed font can draw are replaced: symbols by their description, all other
    names by the number of the class. Names that would be the same when shortened get the number of
    the class in front. The note is a sentence for the user, or None if no name was replaced.
    """
    plain = [unicodedata.normalize("NFC", _printable(name)) for name in class_names]
    names = [_in_words(name) or f"class {k}" for k, name in enumerate(plain)]
    replaced = [k for k, name in enumerate(plain) if name != names[k]]
    ends = [short(name, TOLD_APART) for name in names]
    for k, name in enumerate(names):
        if ends.count(ends[k]) > 1:
            names[k] = f"{k}: {name}"
    if not replaced:
        return names, None
    k, more = replaced[0], f" (and {len(replaced) - 1} more)" if len(replaced) > 1 else ""
    return names, (
        f"figures show {names[k]!r} instead of the class name {plain[k]!r}{more}, which no"
        " installed font can draw: install a font for its script, such as one of the Noto fonts"
    )


def _printable(name):
    return "".join(c if c.isprintable() or "\u200b" < c < "\u200e" else " " for c in name).strip()


def _in_words(name):
    """Return a name, with its symbols, such as emoji, replaced by descriptions if necessary.

    Returns None if other characters of the name have no font.
    """
    if name and _drawable(name):
        return name
    words = ""
    for c in unicodedata.normalize("NFKC", name):
        if unicodedata.category(c) == "So" and not _drawable(c):
            words += f" {unicodedata.name(c, 'symbol').lower()} "
        elif unicodedata.category(c) not in ("Cf", "Sk") and c != EMOJI_STYLE:
            words += c
    words = " ".join(words.split())
    return words if words and _drawable(words) else None


def _drawable(text):
    """Return whether a font is installed for each character, and the text would read correctly."""
    import matplotlib

    if SHAPED.search(text) and matplotlib.__version_info__[:2] < SHAPING:
        return False
    return all(_font_with(c) for c in set(text))


@functools.cache
def _font_with(character):
    """Return the family name of an installed font that has a character, or None."""
    from matplotlib.font_manager import fontManager

    usual = ("DejaVu Sans", *OTHER_FONTS)  # the first is Matplotlib's default
    regular = {}
    for font in fontManager.ttflist:
        if font.style == "normal" and not any(word in font.name for word in UNUSABLE):
            regular.setdefault(font.name, font.fname)
    for name in (*usual, *sorted(set(regular) - set(usual))):
        if name in regular and ord(character) in _characters(regular[name]):
            return name
    return None


@functools.cache
def _characters(file):
    """Return the code points for which a font file has outlines."""
    from matplotlib.font_manager import get_font

    try:
        font = get_font(file)
    except (OSError, RuntimeError):  # not a font that Matplotlib can draw
        return frozenset()
    return frozenset(font.get_charmap()) if font.scalable else frozenset()


# ---- drawing


def names_as_they_are(draw):
    """Decorate a drawing function so that the names among its arguments are displayed literally.

    Dollar signs do not start formulas, and characters missing from Matplotlib's default font are
    taken from an installed font.
    """

    @functools.wraps(draw)
    def drawing(*args, **keywords):
        import matplotlib

        characters = set().union(*_strings([args, keywords]))
        others = {_font_with(c) for c in characters if not c.isascii()} - {None}
        usual = matplotlib.rcParams["font.family"]
        fonts = [*usual, *sorted(others - set(usual))]
        settings = {"text.parse_math": False, "font.family": fonts}
        with matplotlib.rc_context(settings), _quiet():
            return draw(*args, **keywords)

    return drawing


@contextmanager
def _quiet():
    """Silence Matplotlib's remarks on fonts that lack a regular weight."""
    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _strings(value):
    """Yield all strings in nested lists, tuples and dictionaries."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def fit(text: str, inches: float, size: float, lines: int = 1) -> str:
    """Wrap and shorten a text so that it is at most `inches` wide and has at most `lines` lines.

    It is wrapped after spaces, underscores, slashes and hyphens; where that is not enough, an
    ellipsis replaces the middle. size: font size in points.
    """
    largest = int(lines * inches * POINTS / size / NARROWEST)
    for most in range(min(len(text), largest), 0, -1):
        rows = _wrapped(short(text, most), inches, size, lines)
        if rows is not None and len(rows) <= lines:
            return "\n".join(rows)
    return text[:1]


def _wrapped(text, inches, size, lines):
    """Divide a text into lines of at most `inches`; words that are wider are shortened.

    Returns None for a text that is wider than the only line.
    """
    if _width(text, size) <= inches:
        return [text]
    if lines == 1:
        return None
    rows = [""]
    for word in re.split(r"(?<=[\s_/-])(?=\S)", text):
        if rows[-1] and _width((rows[-1] + word).rstrip(), size) > inches:
            rows.append("")
        rows[-1] += fit(word, inches, size)
    return [row.rstrip() for row in rows]


def _width(text, size):
    """Return the width in inches of a text in the current fonts."""
    from matplotlib.font_manager import FontProperties

    font = FontProperties(size=size)
    return _renderer().get_text_width_height_descent(text, font, False)[0] / POINTS


@functools.cache
def _renderer():
    from matplotlib.backends.backend_agg import RendererAgg

    return RendererAgg(1, 1, POINTS)
