"""The votes playground in a real browser: its numbers are those of minicaps and of the lessons.

The tests are skipped without Playwright and an installed chromium (`web-test`); CI runs them.
"""

import re
from functools import partial

import numpy as np
import playground_cases
import pytest

from lessons.machinery.page import LESSONS
from minicaps.clustering import soft_kmeans
from minicaps.explore.playground import write
from minicaps.explore.playground.presets import presets

pytestmark = [pytest.mark.xdist_group("web"), pytest.mark.slow]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("playground") / "votes.html"
    write(path)
    return path


@pytest.fixture
def open_votes(visit, file):
    """Return a function that opens the page at a place, such as "#wholes"."""
    return partial(visit, file, reduced_motion="reduce")


def wait_until(page, expression):
    """Wait until an expression is true; Playwright's own wait needs what the page forbids, eval."""
    for _ in range(300):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"{expression} has not become true")


# ---- The twins in votes.js

RUN = """(cases) => cases.map(([name, votes, options]) => {
  const twin = { kmeans, softKmeans, sphericalKmeans, gmm, agreement, distance, em }[name];
  return twin(votes, options).history.map(({ costs, logits, agreed, ...kept }) => kept);
})"""


def as_lists(options):
    return {key: getattr(value, "tolist", lambda v=value: v)() for key, value in options.items()}


def worst_difference(ours, theirs):
    """Return the largest difference of two histories, relative to the largest value of an array."""
    assert abs(len(ours) - len(theirs)) <= 1  # the last digits decide when nothing changes
    worst = 0.0
    for now, one in zip(ours, theirs, strict=False):
        for name, value in one.items():
            found, value = np.array(now[name], float), np.asarray(value, float)
            assert found.shape == value.shape, name
            worst = max(worst, np.abs(found - value).max() / max(np.abs(value).max(), 1e-300))
    return worst


@pytest.mark.parametrize("kind", ["clusterings", "routings"])
def test_the_twins_compute_what_minicaps_computes(open_votes, kind):
    cases = list(getattr(playground_cases, kind)(range(25)))
    sent = [[name, votes.tolist(), as_lists(options)] for name, votes, options, _ in cases]
    found = open_votes().evaluate(RUN, sent)
    assert len(cases) >= 250
    for (name, _, options, theirs), ours in zip(cases, found, strict=True):
        assert worst_difference(ours, theirs) < 1e-9, (name, options)


# ---- Objectives, and bounds between two iterations

CURVES = """(places) => places.map((place) => {
  read(place);
  const method = METHODS[state.method];
  const states = method.run(situation(), 40);
  return [Boolean(method.rising), states.map(({ value, bound }) => [value, bound])];
})"""
CLUSTERED = ["kmeans", "soft", "spherical"]
SETTINGS = [
    f"#{preset}&method={method}&K={K}" for preset in ("wholes", "two-in-one")
    for method in CLUSTERED for K in (0.1, 0.5, 1, 3, 10)
]  # fmt: skip
SETTINGS += [f"#shapes&covariance={c}" for c in ("full", "diagonal", "isotropic", "fixed")]
SETTINGS += [f"#wholes&method=mixture&covariance={c}" for c in ("full", "diagonal", "isotropic")]
SETTINGS += [
    f"#{preset}&method={method}&K={K}&orphans={orphans}" for preset in ("twelve", "faces", "hand")
    for method in ("added", "renewed", "directions", "distance") for K in (0.5, 1, 2, 8)
    for orphans in ("false", "true")
]  # fmt: skip
SETTINGS += ["#ghosts&step=gmm", "#twin"]


def test_every_objective_moves_one_way_and_its_bound_lies_between_two_iterations(open_votes):
    for place, (rising, states) in zip(
        SETTINGS, open_votes().evaluate(CURVES, SETTINGS), strict=True
    ):
        sign = 1 if rising else -1
        values = [sign * value for value, _ in states if value is not None]
        bounds = [sign * bound for _, bound in states if bound is not None]
        assert len(bounds) == len(values) - 1, place
        slack = 1e-9 * max(1, *map(abs, values))
        for before, bound, now in zip(values, bounds, values[1:], strict=False):
            assert before - slack <= bound <= now + slack, place


def test_the_objectives_of_routing_are_those_of_lesson_10(open_votes):
    page, votes = open_votes(), np.array(presets()["sets"]["twelve"])
    kinds = ("added", "renewed", "directions")
    places = [f"#twelve&method={kind}&K=1" for kind in kinds]
    found = dict(zip(kinds, page.evaluate(CURVES, places), strict=True))
    b = {kind: np.zeros(votes.shape[:2]) for kind in kinds}
    for t in range(40):
        for kind in kinds:
            e = np.exp(b[kind])
            s = np.einsum("ij,ijd->jd", e / e.sum(axis=1, keepdims=True), votes)
            n = np.linalg.norm(s, axis=1)
            v = s / n[:, None] if kind == "directions" else (n / (1 + n**2))[:, None] * s
            agreed = np.einsum("ijd,jd->ij", votes, v)
            paid = -np.log(np.exp(agreed).sum(axis=1)).sum()  # (10.1), `pay` in the lesson
            length = n**2 / (1 + n**2)
            price = (np.arcsin(np.sqrt(length)) - np.sqrt(length * (1 - length))).sum()  # (10.5)
            value = {"added": (n - np.arctan(n)).sum(), "renewed": price + paid, "directions": paid}
            assert abs(found[kind][1][t][0] - value[kind]) < 1e-12 * abs(value[kind]) + 1e-12
            b[kind] = agreed + (b[kind] if kind == "added" else 0)


# ---- Presets

PAGES = {"9": "09_kmeans", "10": "10_agreement", "13": "13_mixtures", "14": "14_em_routing"}
# An address, what the page shows there (a fact, or a column of the table of parents), its values,
# the lesson, and the text of the lesson with these values.
SHOWN = [
    line.split("|")
    for line in """\
wholes&r=0|objective|226.281|9|iteration  0: L = 226.281
wholes&r=1|objective|83.083|9|iteration  1: L =  83.083
wholes&r=5|objective|51.786|9|iteration  5: L =  51.786
wholes&r=10|objective|51.418|9|iteration 10: L =  51.418
wholes&r=15|objective|22.109|9|iteration 15: L =  22.109
wholes|objective|17.749|9|iteration 40: L =  17.749
symmetry|centers apart|0.000|9|K 0.5: 0e+00 apart, at the end 0.000
nudge|centers apart|3.855|9|K 0.5: 1e-06 apart, at the end 3.855
nudge|largest variance|3.106|9|grows by 3.106, 2Kλ 3.106
nudge&K=0.1|centers apart|0.000|9|K 0.1: 1e-06 apart, at the end 0.000
nudge&K=0.1|largest variance|0.621|9|grows by 0.621, 2Kλ 0.621
two-in-one|objective|64.7|9|worst end 64.7
two-in-one&v2=-2,-1|objective|17.8|9|best end 17.8
sums|length|12.0 26.2 50.7|9|sums [12.  26.2 50.7]
sums&method=soft|length|2.0 2.2 2.1|9|means [2.  2.2 2.1]
hand&r=1|length|0.692 0.200|10|r = 1: A [0.692308 0.      ], B [0.  0.2]
hand&r=2|length|0.792 0.126|10|A [0.7924 0.    ]
hand&r=3|length|0.851 0.054|10|A [0.851195 0.      ], B [0.       0.053979]
faces&r=3|gap|0.000|10|noise 1e-6 largest gap in round 3 0.000,
faces&r=30|gap|0.228|10|30 0.228, 100 1.000, renewed 0.000
faces&r=100|gap|1.000|10|30 0.228, 100 1.000, renewed 0.000
faces&method=renewed&r=100|gap|0.000|10|100 1.000, renewed 0.000
faces-temperature&K=1.5|gap|0.000|10|K = 1.5: gap of shares 0.000
faces-temperature&K=2|gap|0.997|10|K = 2.0: gap of shares 0.997
faces-temperature&K=2.5|gap|0.999|10|K = 2.5: gap of shares 0.999
faces-temperature&K=3|gap|1.000|10|K = 3.0: gap of shares 1.000
shapes&r=1|objective|-615|13|The log-likelihood rises from -615 to -538
shapes&T=300&r=300|objective|-537.9|13|full      log-likelihood -537.9
shapes&T=300&r=300&covariance=diagonal|objective|-642.3|13|diagonal  log-likelihood -642.3
shapes&T=300&r=300&covariance=isotropic|objective|-643.1|13|isotropic log-likelihood -643.1
sigma|from K-means|0.159|13|σ²    1: 0.1586 from K-means
sigma|largest shares|0.868|13|0.1586 from K-means, largest share 0.868
sigma&sigma2=0.1|from K-means|0.024|13|σ²  0.1: 0.0237 from K-means
sigma&sigma2=0.1|largest shares|0.991|13|largest share 0.991
sigma&sigma2=0.01|from K-means|0.001|13|σ² 0.01: 0.0010 from K-means
ghosts|strength|0.98 0.57|14|strengths [0.98 0.57] deviations [0.18 0.93]
ghosts|deviation|0.18 0.93|14|strengths [0.98 0.57] deviations [0.18 0.93]
ghosts&step=gmm|strength|0.40 0.60|14|strengths [0.4 0.6] deviations [0.35 0.92]
ghosts&step=gmm|deviation|0.35 0.92|14|strengths [0.4 0.6] deviations [0.35 0.92]
ghosts&step=activation&lambda=1|strength|0.88 0.54|14|strengths [0.88 0.54]
ghosts&step=input-activation&lambda=1|strength|0.97 0.54|14|strengths [0.97 0.54]
twin|strength|0.20 0.60 0.20|14|strengths with a twin [0.2 0.6 0.2]
twin&step=complete|strength|0.83 0.59 0.83|14|strengths with a twin [0.83 0.59 0.83]
""".splitlines()
]
READ = """([place, name]) => {
  read("#" + place);
  rebuild();
  const terms = [...document.querySelectorAll("#facts dt")];
  const fact = terms.find((one) => one.textContent.includes(name));
  if (fact) return [fact.nextElementSibling.textContent];
  const heads = [...document.querySelectorAll("#parents-head th")].map((one) => one.textContent);
  const cells = [...document.querySelectorAll("#parents tr")];
  return cells.map((row) => row.children[heads.indexOf(name)].textContent);
}"""


def number(text):
    return float(text.replace("−", "-"))


def test_the_page_shows_the_numbers_that_the_lessons_print(open_votes):
    page = open_votes()
    for place, name, values, lesson, text in SHOWN:
        assert text in (LESSONS / f"{PAGES[lesson]}.md").read_text("utf-8"), text
        shown = page.evaluate(READ, [place, name])
        for found, value in zip(shown, values.split(), strict=True):
            rounding = 0.5 * 10 ** -len(value.partition(".")[2]) + 0.0005  # here and in the lesson
            assert abs(number(found) - float(value)) <= rounding, (place, name)


def test_the_curve_over_the_temperature_forks_where_centers_part(open_votes):
    page = open_votes("#temperature")
    wait_until(page, "known.sweep.lines?.length > 20 && temperature.svg.textContent")
    [preset] = [one for one in presets()["presets"] if one["id"] == "temperature"]
    u = np.array(presets()["sets"]["wholes"])
    variance = np.linalg.eigvalsh(np.cov(u.T, bias=True))[-1]
    for K, places in page.evaluate("known.sweep.lines"):
        options = {"start": preset["starts"], "iterations": 1000, "inverse_temperature": K}
        assert np.allclose(places, soft_kmeans(u, 3, **options).centres, atol=1e-6)
        assert (np.ptp(places, axis=0).max() > 1e-3) == (2 * K * variance > 1)  # (9.11)
    assert "2K · variance = 1" in page.locator("#temperature-chart").text_content()


def test_the_name_of_the_threshold_covers_no_curve(open_votes):
    page = open_votes("#temperature")
    wait_until(page, "known.sweep.lines?.length > 20 && temperature.svg.textContent")
    box = "one.getBoundingClientRect()"
    name = page.locator("#temperature-chart text", has_text="2K")
    bottom = name.evaluate(f"(one) => {box}.bottom")
    tops = page.locator("#temperature-chart .branch").evaluate_all(
        f"(all) => all.map((one) => {box}.top)"
    )
    assert len(tops) == 3 and bottom <= min(tops)


@pytest.mark.parametrize(
    "place, words", [("#wholes", "smaller: how badly"), ("#shapes", "larger: how well")]
)
def test_the_objective_is_said_without_symbols(open_votes, place, words):
    assert words in open_votes(place).locator("#objective-plain").inner_text()


# ---- What a reader does


def test_a_dragged_vote_moves_parents_objective_and_address(open_votes):
    page = open_votes("#two-in-one")
    before = page.locator("#facts").inner_text(), page.locator("#parents").inner_text()
    start = page.locator(".handle.start").nth(2).bounding_box()
    x, y = start["x"] + start["width"] / 2, start["y"] + start["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    left = page.evaluate(
        "planes[0].screen([-2, -1])[0] - planes[0].screen(situation().starts[2])[0]"
    )
    page.mouse.move(x + left, y, steps=5)
    during = page.locator("#facts").inner_text()
    page.mouse.up()
    assert during != before[0] and "17.760" in during  # C has moved to the crowd on the left
    assert page.locator("#parents").inner_text() != before[1]
    wait_until(page, "location.hash.includes('&v2=')")
    again = open_votes(page.evaluate("location.hash"))
    assert again.locator("#facts").inner_text() == during


def test_a_finger_drags_a_vote_and_scrolls_elsewhere(open_votes):
    page = open_votes("#twelve", width=375, height=700, has_touch=True, is_mobile=True)
    page.locator("#planes").scroll_into_view_if_needed()
    before = page.evaluate("situation().votes[0][0]")
    box = page.locator(".handle.vote .dot").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    session, scrolled = page.context.new_cdp_session(page), page.evaluate("scrollY")

    def touch(kind, *points):
        points = [{"x": x, "y": y} for x, y in points]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def swipe(x, y):
        touch("touchStart", (x, y))
        for step in range(1, 6):
            touch("touchMove", (x, y - 8 * step))
        touch("touchEnd")

    swipe(x, y)
    after = page.evaluate("situation().votes[0][0]")
    assert after[1] > before[1] + 0.2
    assert page.evaluate("scrollY") == scrolled
    plane = page.locator(".plane svg").first.bounding_box()
    swipe(plane["x"] + 8, plane["y"] + plane["height"] - 8)  # no vote is near
    wait_until(page, f"scrollY > {scrolled}")
    assert page.evaluate("situation().votes[0][0]") == after


FOCUSED = "document.activeElement.getAttribute('aria-label')"
TOLD = "document.getElementById('live').textContent.includes('{}')"


def test_the_keyboard_moves_chooses_and_removes_votes(open_votes):
    page = open_votes("#twelve")
    page.locator("#preset").focus()
    for _ in range(3):  # the link to the lesson is none here: the button, then a vote
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.handle')"):
            break
    assert page.evaluate(FOCUSED) == "vote 0 for parent A"
    before = page.evaluate("situation().votes[0][0]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    x, y = page.evaluate("situation().votes[0][0]")
    assert abs(x - round(before[0] + 0.1, 2)) < 1e-9 and abs(y - round(before[1] - 0.01, 2)) < 1e-9
    page.keyboard.press("PageDown")
    assert "vote 1 " in page.evaluate(FOCUSED)
    assert "Child 1:" in page.locator("#child").inner_text()
    page.keyboard.press("Delete")
    assert page.evaluate("situation().ids.length") == 11
    assert page.evaluate("document.activeElement.matches('.handle')")
    page.keyboard.press("End")
    assert "vote 11 " in page.evaluate(FOCUSED)


def test_screen_readers_announce_the_state(open_votes):
    page = open_votes("#hand")
    live = page.locator("#live[aria-live=polite]")
    wait_until(page, "document.getElementById('live').textContent.includes('iteration 3 of 10')")
    page.locator("#r").press("ArrowLeft")
    wait_until(page, "document.getElementById('live').textContent.includes('iteration 2 of 10')")
    assert "A at 0.79, 0.00 with 2.0 followers" in live.text_content()


NAMELESS = """[...document.querySelectorAll('button, select, input, summary, [tabindex]')]
  .filter((one) => !(one.labels?.length || one.ariaLabel || one.textContent.trim()))
  .map((one) => one.outerHTML)"""
REACHED = 'a[href], button:enabled, select, input, summary, [tabindex="0"]'
VISIBLE = f"[...document.querySelectorAll('{REACHED}')].filter((one) => one.checkVisibility())"


def test_everything_has_a_name_and_is_reached_by_the_tab_key(open_votes):
    for place in ("#wholes", "#twelve", "#shapes", "#ghosts"):
        page = open_votes(place)
        assert page.evaluate(NAMELESS) == []
        page.evaluate(f"window.missing = new Set({VISIBLE})")
        page.evaluate("addEventListener('focusin', (event) => missing.delete(event.target))")
        for _ in range(page.evaluate("missing.size") + 5):
            page.keyboard.press("Tab")
        assert page.evaluate("[...missing].map((one) => one.outerHTML)") == []


def test_a_chart_that_is_not_drawn_yet_can_be_clicked(open_votes):
    click = """() => {
      const picked = [];
      const chart = new Chart(document.body, "a chart", (x) => picked.push(x));
      chart.svg.dispatchEvent(new PointerEvent("pointerdown", { clientX: 100, clientY: 100 }));
      return picked;
    }"""
    assert open_votes().evaluate(click) == []


def test_every_method_and_number_of_parents_can_be_chosen(open_votes):
    page = open_votes()
    for method in page.evaluate("Object.keys(METHODS)"):
        page.select_option("#method", method)
        for parents in (1, 6, 2):
            page.locator("#J").fill(str(parents))
            assert page.locator("#parents tr").count() == parents
            planes = page.locator(".plane").count()
            assert planes == (1 if page.evaluate("family()") == "points" else parents)
        assert page.evaluate(
            "compute(situation()).every(({ places }) => places.flat().every(isFinite))"
        )
        assert page.evaluate("state.method") == method


def test_votes_are_added_and_removed(open_votes):
    page = open_votes("#wholes")
    page.click("#add")
    assert page.evaluate("situation().ids.length") == 43
    wait_until(page, "location.hash.includes('u42=')")
    page.click("#remove")
    assert page.evaluate("situation().ids.length") == 42
    assert page.locator("#remove").is_disabled()


def test_the_mouse_reads_votes_on_its_way_but_the_chosen_one_is_removed(open_votes):
    page = open_votes("#wholes")
    first, second = (page.locator(".handle.vote .hit").nth(n).bounding_box() for n in (0, 8))

    def centre(box):
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    page.mouse.click(*centre(first))
    page.mouse.move(*centre(second))
    assert "Child 8:" in page.locator("#child").inner_text()
    page.mouse.move(5, 5)
    assert "Child 0:" in page.locator("#child").inner_text()
    page.click("#remove")
    assert 0 not in page.evaluate("situation().ids")


def test_play_shows_all_iterations_and_the_curve_chooses_one(open_votes):
    page = open_votes("#wholes&r=0")
    page.click("#play")
    wait_until(page, "state.r === 40 && document.getElementById('play').textContent === 'Play'")
    box = page.locator("#objective-chart svg").bounding_box()
    page.mouse.click(box["x"] + 60, box["y"] + 50)
    assert page.evaluate("state.r") == 0
    assert page.locator("#r").input_value() == "0"


ODD = [
    "#", "#nothing", "#%F0%9F", "#wholes&=&&&K", "#wholes&method=constructor",
    "#wholes&K=abc&r=-3&J=0", "#wholes&K=1e999&r=1e9&T=5&J=99", "#hand&cut=0,1,2",
    "#wholes&constructor=1&toString=2", "#wholes&u999=1,1",
    "#wholes&u3=1&u4=,&u5=1,2,3&v9=1,1&a3=2", "#twelve&u900A=1,1&u0B=1e9,-1e9",
    "#twelve&method=kmeans", "#shapes&sigma2=0&covariance=fixed", "#sigma&sigma2=0.0001&J=6",
    "#two-in-one&v0=0,0&v1=0,0&v2=0,0", "#ghosts&lambda=1e4&betaU=-10",
]  # fmt: skip


@pytest.mark.parametrize("place", ODD)
def test_an_odd_address_shows_something_finite(open_votes, place):
    page = open_votes(place)
    shown = page.locator("#facts").inner_text() + page.locator("#parents").inner_text()
    assert "NaN" not in shown and "Infinity" not in shown and "undefined" not in shown
    assert page.locator(".handle.vote").count() >= 1
    svg = page.locator("main").inner_html()
    assert "NaN" not in svg and "Infinity" not in svg


def test_an_encoded_address_shows_the_same(open_votes):
    votes = "situation().votes.flat()"
    plain = open_votes("#wholes&u3=1,-0.5&K=2").evaluate(votes)
    assert plain[3] == [1, -0.5]
    assert open_votes("#wholes%26u3=1%2C-0.5&K=2").evaluate(votes) == plain


def test_the_page_fits_a_phone(open_votes):
    page = open_votes()
    page.set_viewport_size({"width": 375, "height": 700})
    for name in [one["id"] for one in presets()["presets"]]:
        page.select_option("#preset", name)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, name


GROUND = "getComputedStyle(document.querySelector('.plane svg')).backgroundColor"


def luminance(rgb):
    """Return the relative luminance of WCAG."""
    linear = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in np.array(rgb) / 255
    ]
    return np.dot(linear, [0.2126, 0.7152, 0.0722])


def test_the_colors_of_parents_stand_out_in_light_and_dark(open_votes):
    page, seen = open_votes(), []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(50)
        ground = luminance([float(v) for v in re.findall(r"[\d.]+", page.evaluate(GROUND))[:3]])
        for color in page.evaluate("colors"):
            low, high = sorted([luminance(color), ground])
            assert (high + 0.05) / (low + 0.05) >= 3, (scheme, color)  # as WCAG asks for graphics
        seen.append(page.evaluate("getComputedStyle(document.querySelector('.parent')).fill"))
    assert seen[0] != seen[1]
