"""The web page of the lessons: building it, and its behavior in a real browser.

Tests are skipped without Sphinx (the extra `web`) or, for those in a browser, without Playwright
and an installed chromium (`web-test`); CI runs all of them.
"""

import re
import shutil
from contextlib import nullcontext

import numpy as np
import pytest

from lessons.__main__ import main
from lessons.machinery.page import LESSONS, find_pages
from lessons.machinery.web import build
from minicaps.explore.playground.presets import presets

pytest.importorskip("furo")
columns = pytest.importorskip("lessons.machinery.web.columns")
NAMES = [path.stem for path in find_pages()]
SITUATIONS = {
    "votes.html": {one["id"] for one in presets()["presets"]},
    "explorer.html": {"inside", "knobs", "pair", "break"},
}
pytestmark = [pytest.mark.xdist_group("web"), pytest.mark.slow]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web") / "site"
    build.build(folder)
    return folder


# ---- contents of the files


def test_the_contents_and_the_menu_lead_to_every_lesson(site):
    index = (site / "index.html").read_text("utf-8")
    assert all(index.count(f'href="{name}.html"') >= 2 for name in NAMES)
    assert "Writing lessons" not in index and "machinery" not in index


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.glob("*.html"):
        text = page.read_text("utf-8")
        loaded = re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="([^"]*)"', text)
        assert loaded or "default-src 'none'" in text  # or the page holds all that it needs
        assert [address for address in loaded if "//" in address] == []


def test_a_quote_names_its_source_and_a_number_in_code_links_to_its_equation(site):
    page = (site / "10_agreement.html").read_text("utf-8")
    assert "minicaps.routing.couplings:couple" in page
    assert '# <a href="06_squash.html#eq-6.1">(6.1)</a>' in page
    assert page.count('id="eq-10.1"') == 1


def test_a_box_is_headed_by_its_own_words(site):
    for name in NAMES:
        page = (site / f"{name}.html").read_text("utf-8")
        headings = re.findall(r'class="admonition-title">([^<]*)<', page)
        assert headings == ["Predict first"] * (LESSONS / f"{name}.md").read_text().count("[!TIP]")
        assert "<strong>Predict first" not in page


def test_every_link_inside_the_site_has_its_target(site):
    pages = {page.name: page.read_text("utf-8") for page in site.glob("*.html")}
    places = {name: set(re.findall(r' id="([^"]*)"', page)) for name, page in pages.items()}
    for name, page in pages.items():
        for target, _, place in re.findall(r'href="([\w.]*\.html)?(#([^"]*))?"', page):
            assert target == "" or target in pages
            if known := SITUATIONS.get(target or name):  # its places are situations
                assert place.partition("&")[0] in {"", *known}
                continue
            assert place == "" or place in places[target or name], f"{name}: {target}#{place}"


def test_a_missing_package_is_named_with_its_remedy(monkeypatch, capsys):
    monkeypatch.setattr(build, "NEEDED", ("sphinx", "nothing_of_that_name"))
    assert main(["web"]) == 1
    assert "nothing_of_that_name cannot be imported: pip install" in capsys.readouterr().err


def test_a_broken_link_stops_the_build_and_keeps_the_old_site(tmp_path, monkeypatch, capsys):
    copy = shutil.copytree(LESSONS, tmp_path / "lessons", ignore=lambda *_: ["web", *NAMES])
    for name in NAMES[1:]:
        (copy / f"{name}.md").unlink()
    old = tmp_path / "site"
    old.mkdir()
    monkeypatch.setattr(build, "LESSONS", copy)
    with pytest.raises(build.SiteError, match="Sphinx warns"):
        build.build(old)
    assert old.is_dir()
    assert f"{NAMES[1]}.md" in capsys.readouterr().err


def test_a_fold_that_is_never_closed_is_named_by_its_line(tmp_path, monkeypatch):
    copy = shutil.copytree(LESSONS, tmp_path / "lessons", ignore=lambda *_: ["web"])
    page = copy / "10_agreement.md"
    before, folded = page.read_text("utf-8").rsplit("\n</details>\n", 1)
    page.write_text(before + folded, "utf-8")
    line = before[: before.rindex("<details>")].count("\n") + 1
    monkeypatch.setattr(build, "LESSONS", copy)
    with pytest.raises(build.SiteError, match=rf"10_agreement.md:{line}: this <details> is never"):
        build.build(tmp_path / "site")


@pytest.fixture
def without_sphinx(monkeypatch):
    """Replace the build by one that writes a single word."""

    def write(_, made):
        made.mkdir()
        (made / "index.html").write_text("new")

    monkeypatch.setattr(build, "_run_sphinx", write)


def test_the_site_takes_the_place_of_an_older_one_and_of_nothing_else(tmp_path, without_sphinx):
    site, other = tmp_path / "site", tmp_path / "other"
    site.mkdir()
    (site / "old.html").touch()
    build.build(site)
    assert (site / "index.html").read_text() == "new" and not (site / "old.html").exists()
    other.mkdir()
    shutil.rmtree(site)
    for make in (site.touch, lambda: site.symlink_to(other)):
        make()
        with pytest.raises(build.SiteError, match="site is not a folder"):
            build.build(site)
        site.unlink()
    assert not list(other.iterdir())


def test_a_site_that_cannot_be_replaced_is_told(tmp_path, without_sphinx, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    monkeypatch.setattr(build.tempfile, "TemporaryDirectory", lambda: nullcontext(tmp_path / "t"))
    (tmp_path / "site").mkdir()
    with pytest.raises(build.SiteError, match=r"cannot write .*site: Permission denied"):
        build.build(tmp_path / "site")
    assert not (tmp_path / "site" / "site").exists()


def test_an_error_in_the_making_of_a_page_is_told(tmp_path, monkeypatch):
    def fail(_):
        raise RuntimeError("no row")

    monkeypatch.setattr(columns, "rows", fail)
    with pytest.raises(build.SiteError, match=r"Sphinx cannot build the pages: .*no row"):
        build.build(tmp_path / "site")
    assert not (tmp_path / "site").exists()


# ---- in a browser


@pytest.fixture
def visit(site, browser):
    """Return a function that opens a page; finally check that nothing failed or left the site."""
    context = browser.new_context(
        viewport={"width": 1500, "height": 900}, reduced_motion="reduce", offline=True
    )
    page, trouble = context.new_page(), []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda message: trouble.append(message.text))
    page.on("request", lambda request: trouble.append(request.url) if away(request.url) else None)

    def away(address):
        return not address.startswith((site.as_uri(), "data:"))

    def open_page(name):
        page.goto(f"{site.as_uri()}/{name}.html")
        page.evaluate("window.MathJax && MathJax.startup.promise")
        return page

    yield open_page
    context.close()
    assert trouble == []


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_shows_its_formulas_and_fits_desktops_and_phones(visit, name):
    page = visit(name)
    formulas = page.evaluate("document.querySelectorAll('.math').length")
    assert page.evaluate("document.querySelectorAll('.math > mjx-container').length") == formulas
    assert page.evaluate("document.querySelectorAll('mjx-merror, [data-mjx-error]').length") == 0
    cut = "(one) => one.scrollWidth > one.clientWidth"
    wide = f"[...document.querySelectorAll('div.math')].some({cut})"
    assert not page.evaluate(wide), "a formula is wider than its column"
    for width in (1500, 1100, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


LOST = """[...document.querySelectorAll('span.math')].filter((formula) => {
  const mark = document.createRange();
  const text = document.createTreeWalker(formula.closest('p, li, td, th'), NodeFilter.SHOW_TEXT);
  text.currentNode = formula;
  while (text.nextNode() && formula.contains(text.currentNode));
  const next = text.currentNode;
  if (formula.contains(next) || !/^[.,;:)?]/.test(next.textContent)) return false;
  mark.setStart(next, 0);
  mark.setEnd(next, 1);
  return mark.getBoundingClientRect().left < formula.getBoundingClientRect().right - 1;
}).length"""


def test_a_full_stop_never_begins_a_line_behind_a_formula(visit):
    page = visit("13_mixtures")
    for width in range(300, 500, 10):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(LOST) == 0


def test_code_stands_beside_its_prose_on_wide_screens_and_below_it_on_narrow_ones(visit):
    page = visit("10_agreement")
    words, work = (page.locator(f".row:has(.work) > {cell}").first for cell in (".words", ".work"))
    one, other = words.bounding_box(), work.bounding_box()
    assert one["x"] + one["width"] <= other["x"]
    page.set_viewport_size({"width": 390, "height": 900})
    one, other = words.bounding_box(), work.bounding_box()
    assert one["y"] + one["height"] <= other["y"]


STEPPED = [path.stem for path in sorted((LESSONS / "figures").glob("*.json"))]


@pytest.mark.parametrize("figure", STEPPED)
def test_each_slider_moves_its_picture_by_keyboard(visit, figure):
    [name] = [name for name in NAMES if name[:2] == figure[:2]]
    page = visit(name)
    steppers = page.locator(".stepper")
    assert steppers.count() == len([other for other in STEPPED if other[:2] == figure[:2]])
    for stepper in steppers.all():
        labels = stepper.locator("label").all()
        for label in labels:
            label.locator("input").focus()
            page.keyboard.press("End")
        for label in labels:
            before = stepper.locator("svg").inner_html(), label.locator("output").inner_text()
            label.locator("input").focus()
            page.keyboard.press("ArrowLeft")
            after = stepper.locator("svg").inner_html(), label.locator("output").inner_text()
            assert before[0] != after[0] and before[1] != after[1]


def test_nothing_lies_over_a_stepper_to_which_one_scrolls_back(visit):
    page = visit("10_agreement")
    page.set_viewport_size({"width": 390, "height": 900})
    stepper = page.locator(".stepper").first
    for edge in (80, -200, 80):  # to the stepper, past it, and back
        page.evaluate(f"scrollBy(0, {stepper.bounding_box()['y'] - edge})")
        page.wait_for_timeout(200)  # the theme reacts to the scroll position
    top, height = (stepper.bounding_box()[name] for name in ("y", "height"))
    found = "document.elementFromPoint(195, {}).closest('.stepper')"
    assert all(page.evaluate(found.format(y)) for y in np.arange(top + 5, top + height - 5, 10))


def test_a_link_to_an_equation_lights_it_up_on_another_page_too(visit):
    page = visit("10_agreement")
    ground = "getComputedStyle(document.getElementById('{}')).backgroundColor"
    plain = page.evaluate(ground.format("eq-10.1"))
    page.locator('.highlight a[href="10_agreement.html#eq-10.1"]').first.click()
    assert page.evaluate(ground.format("eq-10.1")) != plain
    assert page.locator('[id="eq-10.1"]').bounding_box()["y"] < 900
    page.locator('.highlight a[href="06_squash.html#eq-6.1"]').first.click()
    page.wait_for_url("**/06_squash.html#eq-6.1")
    page.wait_for_function("window.MathJax && MathJax.startup.promise")
    assert page.evaluate(ground.format("eq-6.1")) != plain
    place = page.locator('[id="eq-6.1"]').bounding_box()
    assert 0 <= place["y"] < 900


KEYS = "a[href], button, summary, input"


@pytest.mark.parametrize("width", [1500, 390])
def test_the_tab_key_reaches_everything(visit, width):
    page = visit("08_fixed_points")
    page.set_viewport_size({"width": width, "height": 900})
    visible = f"""[...document.querySelectorAll('{KEYS}')].filter(
        (one) => one.checkVisibility({{visibilityProperty: true}}))"""
    page.evaluate(f"window.missing = new Set({visible})")
    page.evaluate("addEventListener('focusin', (event) => missing.delete(event.target))")
    number = page.evaluate("missing.size")
    assert number > 50
    for _ in range(number + 50):  # includes code that scrolls
        page.keyboard.press("Tab")
    assert page.evaluate("[...missing].map((one) => one.outerHTML)") == []


def test_the_menu_of_a_phone_opens_by_keyboard(visit):
    page = visit("08_fixed_points")
    page.set_viewport_size({"width": 390, "height": 900})
    link = page.locator(".sidebar-tree a").first
    assert not link.is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    link.click()  # waits until it has slid in
    page.wait_for_url(f"**/{NAMES[0]}.html")


def test_dark_mode_and_print_are_readable(visit):
    page = visit("08_fixed_points")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.emulate_media(media="print")
    assert page.locator("img.print-only").first.is_visible()
    assert not page.locator(".stepper").first.is_visible()
    assert not page.locator(".sidebar-drawer").is_visible()


def test_a_lesson_leads_to_its_situation_in_the_playground_and_back(visit):
    page = visit("10_agreement")
    page.locator('a[href="votes.html#twelve"]').first.click()
    page.wait_for_url("**/votes.html#twelve")
    assert page.locator("#preset").input_value() == "twelve"
    page.locator("#preset-lesson").click()
    page.wait_for_url("**/10_agreement.html")
    page.go_back()
    page.locator("#home").click()
    page.wait_for_url("**/index.html")


def test_a_quote_is_captioned_and_the_line_that_ends_a_summary_stays():
    quote = "```python source=minicaps.ops.capsule:squash"
    block = "```{code-block} python\n:caption: minicaps.ops.capsule:squash"
    assert build.caption_quotes(f"Words.\n\n{quote}\n") == f"Words.\n{block}\n"
    assert build.caption_quotes(f"<summary>Code</summary>\n\n{quote}\n") == (
        f"<summary>Code</summary>\n\n{block}\n"
    )
