"""The appendices agree with the lessons: letters and terms occur in the lessons that they name."""

import re

import lesson_rules

from lessons.machinery.page import LESSONS

LINK = re.compile(r"\[\d+\]\((\d\d_\w+\.md)\)")


def rows(name, columns):
    """Yield the cells of each table row that has `columns` cells and links to a lesson."""
    for line in (LESSONS / name).read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == columns and LINK.search(cells[-1]):
            yield cells


LETTERS = [*rows("A1_notation.md", 3), *rows("A1_notation.md", 4)]
TERMS = list(rows("A3_glossary.md", 4))


def spelled(formula):
    """Return a formula without spaces and braces, which do not change its appearance."""
    return re.sub(r"[\s{}]|\\ ", "", formula.replace(r"\mid", "|"))


def holds(formula, letter):
    """Tell whether the letter, with its accents and indices, is in the formula."""
    return re.search(rf"(?<![A-Za-z\\]){re.escape(letter)}(?![A-Za-z])", formula)


def test_each_letter_is_used_in_the_lessons_that_the_notation_names():
    formulas = {
        path.name: [spelled(formula.body) for formula in lesson_rules.Page(path).formulas]
        for path in LESSONS.glob("[0-9]*.md")
    }
    named = [
        (row[0], spelled(row[0].strip("$")), name)
        for row in LETTERS
        for name in LINK.findall(row[-1])
    ]
    assert len(named) >= len(LETTERS) > 50
    assert [
        (letter, name)
        for letter, spelling, name in named
        if not any(holds(formula, spelling) for formula in formulas[name])
    ] == []


def test_each_term_is_used_in_the_lesson_that_the_glossary_names():
    prose = {
        path.name: re.sub(r"[*\s]+", " ", lesson_rules.Page(path).prose)
        for path in LESSONS.glob("[0-9]*.md")
    }
    for term, chinese, _, lesson in TERMS:
        name = LINK.search(lesson)[1]
        assert re.search(rf"\b{re.escape(term)}", prose[name], re.IGNORECASE), (term, name)
        assert re.search("[\u4e00-\u9fff]", chinese), term


def test_the_glossary_is_in_alphabetical_order():
    terms = [row[0].lower() for row in TERMS]
    assert len(terms) > 50
    assert terms == sorted(terms)


def test_each_erratum_says_what_kind_it_is():
    text = (LESSONS / "A2_errata.md").read_text("utf-8")
    entries = re.findall(r"^\*\*(.+?)[:*]", text, re.MULTILINE)
    kinds = {"Wrong", "Imprecise", "Slow", "Open question"}
    assert len(entries) > 20 and set(entries) == kinds
