"""Pages that are joined from texts: nothing in them may end an element early or load a file."""

import json
import re

import pytest

from minicaps.explore.page import page


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


@pytest.mark.parametrize("value", ["</script><b>", "<!-- <script>", "é …\u2028 \" ' \\", None, [1]])
def test_any_text_survives_as_data(value):
    text = page("t", "<p>b</p>", scripts=["let a;"], data={"value": value})
    assert data_of(text) == {"value": value}
    assert text.count("</script>") == 2


def test_numbers_that_are_not_json_are_refused():
    with pytest.raises(ValueError):
        page("t", "", data=[float("nan")])


@pytest.mark.parametrize("kind, text", [("scripts", "'</SCRIPT>'"), ("styles", "/* </style> */")])
def test_a_text_that_would_end_its_element_is_refused(kind, text):
    with pytest.raises(ValueError, match="ends or hides"):
        page("t", "", **{kind: [text]})


def test_a_page_has_a_title_a_language_and_the_shared_style_first():
    text = page("a < b", "<p>b</p>", styles=["p {}"], scripts=["one", "two"])
    assert "<title>a &lt; b</title>" in text and '<html lang="en">' in text
    assert text.index("--accent:") < text.index("p {}") < text.index("<p>b</p>")
    assert text.index("one") < text.index("two")
    assert 'name="viewport"' in text and "light dark" in text


def test_a_page_loads_nothing():
    assert not re.search(r'(src|href)="', page("t", ""))
