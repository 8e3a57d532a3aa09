"""The appendices keep to the lessons: letters and terms are used where they say so."""

import re

import lesson_rules
import pytest

from lessons.machinery.page import LESSONS

LINK = re.compile(r"\[\d+\]\((\d\d_\w+\.md)\)")


def rows(name, columns):
    """The cells of each row of the tables of a page that have so many columns and name lessons."""
    for line in (LESSONS / name).read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == columns and LINK.search(cells[-1]):
            yield cells


LETTERS = [*rows("A1_notation.md", 3), *rows("A1_notation.md", 4)]
TERMS = list(rows("A3_glossary.md", 4))


def spelled(formula):
    """A formula without spaces and braces, which do not change what it shows."""
    return re.sub(r"[\s{}]|\\ ", "", formula.replace(r"\mid", "|"))


def holds(formula, letter):
    """Tell whether the letter, with all that hangs on it, is in the formula."""
    return re.search(rf"(?<![A-Za-z\\]){re.escape(letter)}(?![A-Za-z])", formula)


@pytest.mark.parametrize("row", LETTERS, ids=[row[0] for row in LETTERS])
def test_each_letter_is_used_in_the_lessons_that_the_notation_names(row):
    letter = spelled(row[0].strip("$"))
    for name in LINK.findall(row[-1]):
        formulas = lesson_rules.Page(LESSONS / name).formulas
        assert any(holds(spelled(formula.body), letter) for formula in formulas), name


@pytest.mark.parametrize("row", TERMS, ids=[row[0] for row in TERMS])
def test_each_term_is_used_in_the_lesson_that_the_glossary_names(row):
    term, chinese, _, lesson = row
    prose = lesson_rules.Page(LESSONS / LINK.search(lesson)[1]).prose
    assert re.search(rf"\b{re.escape(term)}", re.sub(r"[*\s]+", " ", prose), re.IGNORECASE)
    assert re.search("[\u4e00-\u9fff]", chinese)


def test_the_glossary_is_in_alphabetical_order():
    terms = [row[0].lower() for row in TERMS]
    assert len(terms) > 50
    assert terms == sorted(terms)
