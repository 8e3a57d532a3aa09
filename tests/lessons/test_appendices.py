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


def _numbers(words):
    """Return the lessons that `8, 10` or `from 7 on` name; `all` and `code` name none."""
    if first := re.fullmatch(r"from (\d+) on", words):
        return range(int(first[1]), LAST + 1)
    return [int(n) for n in re.findall(r"\d+", words)]


def meanings():
    """Yield (letter, lessons) for the tables of letters with several meanings, or in one place."""
    for line in (LESSONS / "A1_notation.md").read_text("utf-8").splitlines():
        if row := re.fullmatch(r"\| \$([^$]+)\$ \| (.*\)) \|", line):
            for words in re.findall(r"\(((?:from )?\d[\d, ]*(?: on)?)\)", row[2]):
                yield row[1], _numbers(words)
        elif row := re.fullmatch(r"\| \[(\d+)\]\(\w+\.md\) \| (.*) \|", line):
            for letter in re.findall(r"\$([^$]+)\$", row[2]):
                yield letter, [int(row[1])]


def letters(formula):
    """Return the Latin and Greek letters of a formula, without accents, words and commands."""
    formula = re.sub(r"\\(mathrm|begin|end) ?\{[^}]{2,}\}", " ", formula)
    return set(re.findall(r"\\[a-zA-Z]+|[a-zA-Z]", formula)) & ALPHABET


LATIN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
GREEK = "alpha beta gamma delta varepsilon eta theta kappa lambda mu sigma Sigma tau varphi ell"
ALPHABET = LATIN | {"\\" + name for name in GREEK.split()}
# Variables and functions in general, indices, differences and derivatives, Euler's number
GENERAL = set("xyfijklqde")
LAST = max(int(path.name[:2]) for path in LESSONS.glob("[0-9]*.md"))
LETTERS = [*rows("A1_notation.md", 3), *rows("A1_notation.md", 4)]
TERMS = list(rows("A3_glossary.md", 4))


def spelled(formula):
    """Return a formula without spaces in the source and braces, which do not change its look."""
    formula = formula.replace(r"\mid", "|").replace(r"\frac", "/").replace("\\ ", ";")
    return re.sub(r"[\s{}]", "", formula)


def holds(formula, letter):
    """Tell whether the letter, with its accents and indices, is in the formula."""
    if letter in ALPHABET:
        return letter in letters(formula)
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


def by_lesson(display):
    """Return {number of a lesson: its formulas}, all or only the numbered ones."""
    found = {}
    for path in LESSONS.glob("[0-9]*.md"):
        formulas = lesson_rules.Page(path).formulas
        chosen = [f.body for f in formulas if not display or r"\qquad (" in f.body]
        found[int(path.name[:2])] = chosen
    return found


def test_each_letter_of_the_last_tables_is_used_where_the_notation_says():
    used = {n: set().union(*map(letters, bodies)) for n, bodies in by_lesson(False).items()}
    listed = list(meanings())
    assert len(listed) > 100
    assert [
        (letter, number)
        for letter, numbers in listed
        for number in ([numbers] if isinstance(numbers, range) else [[n] for n in numbers])
        if not letters(letter) <= set().union(*(used.get(n, set()) for n in number))
    ] == []


def test_each_letter_of_a_numbered_equation_is_in_the_notation():
    known = {number: set(GENERAL) for number in range(1, LAST + 1)}
    for row in LETTERS:
        for name in LINK.findall(row[-1]):
            for formula in re.findall(r"\$([^$]+)\$", " ".join(row[:-1])):
                known[int(name[:2])] |= letters(formula)
    for letter, numbers in meanings():
        for number in numbers:
            known[number] |= letters(letter)
    missing = {
        number: sorted(set().union(*map(letters, bodies)) - known[number])
        for number, bodies in by_lesson(True).items()
    }
    assert {number: found for number, found in missing.items() if found} == {}


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
