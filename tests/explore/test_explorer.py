"""The explorer in a real browser: drawing, looking inside, turning knobs, breaking, and links."""

import re

import numpy as np
import pytest

from minicaps.data.images import write_picture
from minicaps.explore.explorer import explorer, explorer_of
from minicaps.explore.slim import Examples
from minicaps.models import build

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("explore")]
NETWORK = "mnist"
FOUR = "#image=12"  # a test image of the class 4


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(explorer_of(NETWORK, lessons=""), "utf-8")
    return path


@pytest.fixture
def start(visit, file):
    """Return a function that opens the page in a situation and waits for its first words."""

    def open_page(address="", **options):
        page = visit(file, address, **options)
        wait(page)
        return page

    return open_page


def wait(page):
    """Wait until the page has said what it shows."""
    page.locator("#state:not(:empty)").wait_for(state="attached")


def settle(page):
    """Wait for the next frame and for the address, which is written a moment later."""
    page.wait_for_timeout(800)


def longest(page):
    return page.locator(".bar.winner .name").inner_text()


def length_of(page, name):
    bar = page.locator(".bar", has=page.locator(f".name:text-is('{name}')"))
    return float(bar.locator(".number").inner_text())


def slide(page, field, value):
    page.locator(f"#{field}").evaluate(
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", value
    )
    settle(page)


def pixels(page, canvas):
    code = """(canvas) => {
      const copy = document.createElement("canvas");
      [copy.width, copy.height] = [canvas.width, canvas.height];
      const context = copy.getContext("2d", { willReadFrequently: true });
      context.drawImage(canvas, 0, 0);
      return Array.from(context.getImageData(0, 0, copy.width, copy.height).data);
    }"""
    return np.array(page.locator(f"#{canvas}").evaluate(code)).reshape(-1, 4)[:, :3]


# ---- drawing


SEVEN = [(0.25, 0.2), (0.5, 0.2), (0.75, 0.2), (0.6, 0.45), (0.5, 0.65), (0.45, 0.85)]


def draw(page, points):
    box = page.locator("#paper").bounding_box()
    for k, (x, y) in enumerate(points):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=5)
        if k == 0:
            page.mouse.down()
    page.mouse.up()
    settle(page)


def test_a_digit_drawn_with_the_mouse_is_recognized_wherever_it_is_drawn(start):
    page = start(FOUR)
    draw(page, SEVEN)
    assert longest(page) == "7"
    page.locator("#clear").click()
    draw(page, [(x / 2 + 0.45, y / 2 + 0.45) for x, y in SEVEN])  # small, in a corner
    assert longest(page) == "7"
    seen = pixels(page, "seen")[:, 0].reshape(28, 28)
    rows = np.flatnonzero(seen.max(axis=1) > 50)
    assert rows[-1] - rows[0] in range(18, 22)  # of MNIST's size again


def test_a_drawing_is_in_the_address_and_the_link_shows_it(start):
    page = start(FOUR)
    draw(page, SEVEN)
    address = page.evaluate("location.hash")
    assert "ink=" in address
    again = start(address)
    assert np.array_equal(pixels(again, "seen"), pixels(page, "seen"))
    assert longest(again) == "7"


def test_a_finger_draws_and_does_not_scroll(start):
    page = start(FOUR, width=375, height=800, has_touch=True, is_mobile=True)
    page.locator("#paper").scroll_into_view_if_needed()
    assert (
        page.locator("#paper").evaluate("(paper) => getComputedStyle(paper).touchAction") == "none"
    )
    box = page.locator("#paper").bounding_box()
    for k in range(5):
        page.touchscreen.tap(
            box["x"] + box["width"] / 2, box["y"] + box["height"] * (0.2 + 0.15 * k)
        )
    settle(page)
    assert longest(page) == "1"


def test_the_keyboard_draws_a_one(start):
    page = start(FOUR)
    page.locator("#paper").focus()
    for _ in range(7):
        page.keyboard.press("ArrowUp")
    assert page.locator("#cursor").is_visible()
    for _ in range(15):
        page.keyboard.press("Shift+ArrowDown")
    settle(page)
    assert longest(page) == "1"
    page.keyboard.press("Delete")
    settle(page)
    assert not pixels(page, "seen").any()
    assert max(length_of(page, str(k)) for k in range(10)) < 0.5


def test_the_arrow_keys_choose_a_test_image(start):
    page = start()
    page.locator("#examples [aria-checked=true]").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    settle(page)
    assert page.evaluate("location.hash") == "#image=3"
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label == f"test image 4: {longest(page)}"


def test_the_eraser_takes_from_a_test_image(start):
    page = start(FOUR)
    before = pixels(page, "seen").sum()
    page.locator("#erase").click()
    draw(page, [(0.2, 0.75), (0.8, 0.75)])
    assert 0 < pixels(page, "seen").sum() < before


@pytest.mark.parametrize("ground", [0, 1])
def test_a_file_is_inverted_and_centered(start, tmp_path, ground):
    picture = np.full((1, 60, 90), float(ground), np.float32)
    picture[:, 10:50, 40:46] = 1 - ground
    with open(tmp_path / "one.png", "wb") as file:
        write_picture(file, picture)
    page = start(FOUR)
    page.locator("#file").set_input_files(tmp_path / "one.png")
    settle(page)
    assert longest(page) == "1"


def test_a_file_can_be_dropped_anywhere(start):
    page = start("#image=0")
    page.evaluate("""async () => {
      const canvas = new OffscreenCanvas(50, 80), context = canvas.getContext("2d");
      context.fillStyle = "white";
      context.fillRect(22, 10, 6, 60);
      const data = new DataTransfer();
      data.items.add(new File([await canvas.convertToBlob()], "one.png"));
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
    }""")
    settle(page)
    assert longest(page) == "1"


def test_a_file_that_is_no_image_is_named(start, tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    page = start(FOUR)
    page.locator("#file").set_input_files(tmp_path / "notes.txt")
    page.get_by_text("notes.txt is not an image that this browser reads").wait_for()
    assert longest(page) == "4"


# ---- looking inside


def test_more_iterations_lengthen_the_winner_and_each_can_be_shown(start):
    page, found = start(FOUR), []
    for r in (1, 2, 3, 10):
        slide(page, "field-r", r)
        assert page.locator("#film .frame:visible").count() == r
        found.append(length_of(page, "4"))
    assert found == sorted(found) and found[-1] > found[0] + 0.2
    before = page.locator("#votes").inner_html()
    page.locator("#film .frame").first.click()
    settle(page)
    assert page.locator("#film .frame").first.get_attribute("aria-pressed") == "true"
    assert page.locator("#votes").inner_html() != before
    assert "t=1" in page.evaluate("location.hash")


def test_in_the_first_iteration_all_couplings_are_equal(start):
    page = start(FOUR + "&t=1")
    assert not page.locator("#couplings").evaluate(
        "(c) => c.getContext('2d').getImageData(0, 0, 72, 10).data.some((x, k) => k % 4 === 3 && x)"
    )


def test_every_routing_can_be_chosen(start):
    page, seen = start(FOUR), set()
    names = page.locator("#field-rule option").evaluate_all("(all) => all.map((one) => one.value)")
    assert len(names) == 7
    for name in names:
        page.locator("#field-rule").select_option(name)
        settle(page)
        seen.add(page.locator("#votes").inner_html())
    assert len(seen) == 7
    assert "trained with agreement" in page.locator("#trained").inner_text()


def test_a_bar_chooses_the_parent_until_another_image_is_taken(start):
    page = start(FOUR)
    page.locator(".bar").nth(9).click()
    settle(page)
    assert page.locator(".parent-name").first.inner_text() == "9"
    page.locator("#examples button").first.click()
    settle(page)
    assert page.locator(".parent-name").first.inner_text() == longest(page) == "0"


@pytest.mark.parametrize(
    "target, equation",
    [("#maps", "(4.4)"), ("#primary", "(6.1)"), ("#couplings", "(10.2)"), ("#votes", "(7.4)")],
)
def test_whatever_the_pointer_or_the_keyboard_reaches_says_its_number(start, target, equation):
    page, place = start(FOUR), None
    page.locator(target).scroll_into_view_if_needed()
    page.locator(target).hover(position={"x": 60, "y": 60})
    place = page.locator("#readout")
    assert equation in place.inner_text() and re.search(r"\d\.\d\d", place.inner_text())
    link = place.locator("a").get_attribute("href")
    assert re.fullmatch(r"\d\d_\w+\.html#eq-" + re.escape(equation.strip("()")), link)
    page.mouse.move(5, 5)
    page.locator(target).focus()
    page.keyboard.press("ArrowRight")
    first = place.inner_text()
    page.keyboard.press("ArrowRight")
    assert place.inner_text() != first


def test_the_couplings_that_are_told_sum_to_one(start):
    page, total = start(FOUR), 0
    page.locator("#couplings").focus()
    for _ in range(10):
        page.keyboard.press("ArrowDown")
    for _ in range(10):
        total += float(re.search(r"gives (\d\.\d+)", page.locator("#readout").inner_text())[1])
        page.keyboard.press("ArrowUp")
    assert total == pytest.approx(1, abs=0.06)  # each is rounded to two digits


# ---- knobs, pairs, breaking


def test_a_knob_changes_the_drawing_and_reset_brings_it_back(start):
    page = start(FOUR + "&tab=knobs")
    before = pixels(page, "knobs-drawn")
    slide(page, "knob-0", 90)
    changed = pixels(page, "knobs-drawn")
    assert abs(changed - before).max() > 20
    again = start(page.evaluate("location.hash"))
    assert abs(pixels(again, "knobs-drawn") - changed).max() <= 1
    page.locator("#reset-pose").click()
    settle(page)
    assert np.array_equal(pixels(page, "knobs-drawn"), before)


def test_a_second_digit_is_laid_over_and_both_are_drawn(start):
    page = start(FOUR + "&tab=pair")
    alone = pixels(page, "seen").sum()
    page.locator("#seconds button").nth(3).click()
    slide(page, "field-dx", 7)
    assert pixels(page, "seen").sum() > alone
    assert "second=3" in page.evaluate("location.hash")
    names = re.findall(r"■ (\d), length", page.locator("#pair-names").inner_text())
    assert len(set(names)) == 2
    drawn = [pixels(page, f"pair-drawn-{k}").sum(axis=0) for k in range(2)]
    assert drawn[0].argmax() == 2 and drawn[1].argmax() == 0  # blue, orange
    page.locator("#remove").click()
    settle(page)
    assert pixels(page, "seen").sum() == alone
    assert re.findall(r"■ (\d)", page.locator("#pair-names").inner_text()) == ["4"]
    assert page.locator("#panel-pair .pictures figure:visible").count() == 3


def test_pictures_of_a_pair_are_of_one_size_on_a_phone(start):
    page = start(FOUR + "&tab=pair&second=3", width=375, height=812)
    boxes = [one.bounding_box() for one in page.locator("#panel-pair .pictures figure").all()]
    assert len(boxes) == 5 and len({round(box["width"]) for box in boxes}) == 1


def test_the_discs_of_all_parents_have_one_scale(start):
    page, code = (
        start(FOUR),
        "(all) => Math.max(...all.map((one) => Number(one.getAttribute('r'))))",
    )
    largest = {}
    for name in ("4", "0"):
        page.locator("#field-parent").select_option(name)
        settle(page)
        largest[name] = page.locator("#film circle").evaluate_all(code)
    assert length_of(page, "0") < 0.2 and largest["0"] < largest["4"] / 2


def test_a_rotation_breaks_the_network_and_the_curve_shows_it(start):
    page = start(FOUR + "&tab=break")
    intact = length_of(page, "4")
    slide(page, "field-rotate", 90)
    page.wait_for_timeout(2500)
    assert length_of(page, "4") < intact / 2
    steps = page.locator("#curve .own").get_attribute("d").count("L")
    assert steps == 24
    assert page.locator("#curve .dense").count() == 1
    assert "rotated by 90 degrees" in page.locator("#state").inner_text()
    page.locator("#mend").click()
    settle(page)
    assert length_of(page, "4") == intact


@pytest.mark.parametrize("knob, value", [("noise", 80), ("hide", 60), ("right", 9), ("zoom", 50)])
def test_every_slider_spoils_the_image(start, knob, value):
    page = start(FOUR + "&tab=break")
    before = pixels(page, "seen")
    slide(page, f"field-{knob}", value)
    assert not np.array_equal(pixels(page, "seen"), before)
    address = page.evaluate("location.hash")
    assert f"{knob}={value}" in address
    assert np.array_equal(pixels(start(address), "seen"), pixels(page, "seen"))


# ---- the page


@pytest.mark.parametrize("tab", ["inside", "knobs", "pair", "break"])
@pytest.mark.parametrize("width", [375, 768, 1100, 1440])
def test_every_tab_fits_phones_and_desktops(start, tab, width):
    page = start(f"{FOUR}&tab={tab}&second=7", width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(f"#panel-{tab}").is_visible()
    assert page.locator("[role=tabpanel]:visible").count() == 1


def bottom_of(page, selector):
    return page.locator(selector).last.evaluate("(one) => one.getBoundingClientRect().bottom")


@pytest.mark.parametrize("size", [(1280, 800), (1440, 800), (1280, 1000)])
def test_the_bars_are_in_sight_while_somebody_draws(start, size):
    page = start(FOUR, width=size[0], height=size[1])
    top = "document.querySelector('#readout').getBoundingClientRect().top"
    for scrolled in ("document.querySelector('.explorer').offsetTop", "document.body.scrollHeight"):
        page.evaluate(f"scrollTo(0, {scrolled})")
        assert page.locator("#paper").evaluate("(one) => one.getBoundingClientRect().top") >= 0
        assert max(bottom_of(page, ".bar"), bottom_of(page, ".side .keys")) <= page.evaluate(top)


@pytest.mark.parametrize("size", [(1024, 768), (1100, 900), (800, 600)])
def test_the_bars_are_reached_in_a_smaller_window(start, size):
    page = start(FOUR, width=size[0], height=size[1])
    page.evaluate("scrollTo(0, 0)")
    beyond = bottom_of(page, ".side .keys") - page.evaluate("innerHeight") + 60
    page.evaluate(f"scrollTo(0, {max(0, beyond)})")
    top = page.evaluate("document.querySelector('#readout').getBoundingClientRect().top")
    assert bottom_of(page, ".side .keys") <= top


def test_dark_mode_changes_the_page_and_its_pictures(start):
    page = start(FOUR, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark, maps = page.evaluate(ground), pixels(page, "maps")
    page.emulate_media(color_scheme="light")
    settle(page)
    assert page.evaluate(ground) != dark
    assert not np.array_equal(pixels(page, "maps"), maps)


@pytest.mark.parametrize(
    "address",
    ["#image=99&parent=-7&r=1e9&t=3&tab=no", "#ink=ZZZ&image=-1", "#%%%&=&==&rotate=", "#"],
)
def test_an_address_without_sense_shows_what_it_can(start, address):
    page = start(address)
    assert page.locator("#panel-inside").is_visible()


@pytest.mark.parametrize("tab", ["inside", "knobs", "pair", "break"])
def test_the_name_of_a_tab_is_an_address(start, tab):
    assert start(f"#{tab}").locator(f"#panel-{tab}").is_visible()


def test_an_address_that_was_encoded_on_its_way_is_understood(start):
    page = start("#image%3D0%26tab%3dknobs")
    assert longest(page) == "0" and page.locator("#panel-knobs").is_visible()


def test_a_changed_address_changes_the_page(start):
    page = start(FOUR)
    page.evaluate("location.hash = '#image=0&tab=knobs'")
    settle(page)
    assert longest(page) == "0" and page.locator("#panel-knobs").is_visible()


TASKS = [("inside", "t=1"), ("inside", "r=10"), ("knobs", "tab"), ("break", "rotate=50")]


def take(page, number):
    page.locator(".tasks button").nth(number).click()
    settle(page)


def test_the_tasks_lead_to_their_situations(start):
    page = start()
    for number, (tab, field) in enumerate(TASKS):
        take(page, number)
        assert page.locator(f"#panel-{tab}").is_visible()
        assert field in page.evaluate("location.hash")
        assert longest(page) == "4" or tab == "break"


def test_the_tasks_keep_what_was_drawn_until_another_image_is_taken(start):
    page = start()
    draw(page, SEVEN)
    drawn = pixels(page, "seen")
    for number in (1, 2):
        take(page, number)
        assert np.array_equal(pixels(page, "seen"), drawn)
    take(page, 3)
    assert re.search(r"ink=.*rotate=50", page.evaluate("location.hash"))
    page.locator("#mend").click()
    settle(page)
    assert np.array_equal(pixels(page, "seen"), drawn)
    take(page, 0)
    assert page.evaluate("location.hash") == f"{FOUR}&t=1"


@pytest.mark.parametrize("number", range(4))
def test_a_task_scrolls_to_its_tab_on_a_phone(start, number):
    page = start(width=375, height=812)
    page.locator(".tasks summary").click()
    take(page, number)
    assert -1 <= page.evaluate("document.querySelector('.tabs').getBoundingClientRect().top") < 400


# ---- what the page says


def reach(page, target, *keys):
    page.locator(target).focus()
    for key in keys:
        page.keyboard.press(key)
    return page.locator("#readout").inner_text()


def test_what_is_told_follows_every_change(start):
    page = start(FOUR)
    readout = page.locator("#readout")
    told = reach(page, "#couplings", *["ArrowRight"] * 20, *["ArrowDown"] * 4)
    assert re.match(r"Iteration 3: Child 21 .* gives 0\.\d\d to 4", told)
    slide(page, "field-t", 1)
    assert re.match(r"Iteration 1: Child 21 .* gives 0\.10 to 4", readout.inner_text())
    page.locator("#field-rule").select_option("leaky")
    settle(page)
    assert "gives 0.10 to 4" not in readout.inner_text()  # the 4 is a 10th without the orphans
    before = reach(page, "#votes", "ArrowRight")
    page.locator("#examples button").first.click()
    settle(page)
    after = readout.inner_text()
    assert "votes for 0" in after and "votes for 4" in before
    page.locator("#tab-knobs").click()
    settle(page)
    assert readout.inner_text().startswith("Point at")


def test_what_is_told_of_a_bar_is_the_length_beside_it(start):
    page = start(FOUR)
    page.locator(".bar").nth(4).focus()
    page.evaluate("change({ rotate: 60 })")
    settle(page)
    told = page.locator("#readout").inner_text()
    assert float(re.search(r"\|v\| = (\d\.\d+)", told)[1]) == pytest.approx(
        length_of(page, "4"), abs=6e-3
    )
    dense = page.evaluate("denseScores(BESIDE, computed().image)[4]")
    assert f"probability {dense:.3f}" in told


def test_what_is_no_longer_there_is_not_told(start):
    page = start(FOUR + "&r=10")
    page.locator("#film .frame").nth(9).focus()
    assert "Iteration 10" in page.locator("#readout").inner_text()
    slide(page, "field-r", 3)
    assert page.locator("#readout").inner_text().startswith("Point at")
    page = start(FOUR + "&tab=break")
    page.wait_for_timeout(1500)
    assert "rotate" in reach(page, "#curve", "ArrowRight")
    slide(page, "field-noise", 30)
    assert "rotate" not in page.locator("#readout").inner_text()


def test_an_empty_sheet_shows_nothing(start):
    page = start(FOUR)
    assert page.locator("#answer").inner_text() == "4"
    page.locator("#clear").click()
    settle(page)
    assert page.locator("#answer").inner_text() == "nothing is there"
    assert page.locator("#state").inner_text().startswith("Nothing is there.")
    page.locator("#field-rule").select_option("distance")  # all capsules are short, also of a digit
    page.locator("#examples button").nth(12).click()
    settle(page)
    assert page.locator("#answer").inner_text() == longest(page)
    assert "trained with sums" in page.locator("#rule-words").inner_text()


@pytest.mark.parametrize(
    "address, words",
    [
        ("", "This is how the network was trained."),
        ("&r=5", "The network was trained with 3 iterations of this rule."),
        ("&rule=leaky", "its votes are the same here, only the rule is another."),
    ],
)
def test_the_page_says_how_the_network_was_trained(start, address, words):
    page = start(FOUR + address)
    assert page.locator("#trained").inner_text().endswith(words)
    assert ("orphans" in page.locator("#rule-words").inner_text()) == ("leaky" in address)


def test_the_entropy_of_equal_shares_is_one(start):
    for rule in ("accumulate", "leaky"):
        page = start(f"{FOUR}&tab=break&r=1&rule={rule}")
        assert "entropy of the couplings 1.00" in page.locator("#before-text").inner_text()


def test_the_tab_key_reaches_everything(start):
    page = start(FOUR)
    keys = "a[href], button, input, select, summary, [tabindex='0']"
    code = f"""[...document.querySelectorAll("{keys}")].filter(
      (one) => one.tabIndex >= 0 && !one.disabled && one.checkVisibility())"""
    page.evaluate(f"window.missing = new Set({code})")
    page.evaluate("addEventListener('focusin', (event) => missing.delete(event.target))")
    number = page.evaluate("missing.size")
    assert number > 25
    for _ in range(number + 20):
        page.keyboard.press("Tab")
    assert page.evaluate("[...missing].map((one) => one.outerHTML)") == []


def test_the_arrow_keys_go_from_tab_to_tab(start):
    page = start(FOUR)
    page.locator("#tab-inside").focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert page.locator("#panel-knobs").is_visible()
    assert page.evaluate("document.activeElement.id") == "tab-knobs"


def test_every_control_has_a_name_for_screen_readers(start):
    page = start(FOUR)
    code = """[...document.querySelectorAll("button, input, select, canvas, svg[tabindex], a")]
      .filter((one) => one.checkVisibility() && !one.parentElement.closest("[role=img], button"))
      .filter((one) => !one.getAttribute("aria-label") && !one.labels?.length)
      .filter((one) => !one.innerText?.trim())
      .map((one) => one.outerHTML)"""
    assert page.evaluate(code) == []


# ---- networks of other forms


@pytest.mark.parametrize(
    "shape, classes, options, background",
    [
        ((3, 40, 33), 20, {}, "mixed"),
        ((1, 28, 28), 2, {"routing": "learned", "decoder": False}, None),
        ((1, 36, 28), 3, {"routing": "distance", "iterations": 12}, "light"),
    ],
)
def test_networks_of_other_forms_are_shown(visit, tmp_path, shape, classes, options, background):
    model = build("capsnet", shape, classes, preset="small", **options)
    model.class_names = tuple(f'class "{k}" <b>' for k in range(classes))
    object.__setattr__(model.preprocessing, "background", background)
    images = np.random.default_rng(0).integers(0, 255, (classes, *shape), dtype=np.uint8)
    examples = Examples(images, list(model.class_names)) if classes > 2 else None
    file = tmp_path / "page.html"
    file.write_text(explorer(model, examples=examples), "utf-8")
    for tab in ("inside", "knobs", "pair", "break"):
        page = visit(file, f"#tab={tab}&rotate=20&r=10")
        wait(page)
        assert page.locator(".bar").count() == classes
        draw(page, SEVEN)
        assert page.locator(f"#panel-{tab}").is_visible()
        assert page.locator("#readout a").count() == 0
