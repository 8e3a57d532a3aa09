"""The functions of `capsnet.js` and `images.js` in a browser, against those of minicaps."""

import base64

import explored
import numpy as np
import pytest

from minicaps import Tensor, no_grad
from minicaps.data import affine
from minicaps.data.images import centre, fit
from minicaps.explore.embedded import describe, describe_beside, halves, rounded
from minicaps.explore.page import static
from minicaps.models import build

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("explore")]
CLOSE = 1e-4
TURNS = (
    (0, 1, 0, 0),
    (20, 1, 0, 0),
    (-35, 0.9, 1, 0),
    (90, 1, 0, 0),
    (0, 1.3, -3, 2),
    (0, 0.6, 5, 5),
)

# The results of one image: couplings, lengths and the reconstruction, as base64 of float32
RUN = """([network, images, options]) => {
  const known = withWeights(network), made = { couplings: [], lengths: [], drawn: [] };
  for (const text of images) {
    const image = { data: new Float32Array(bytes(text).buffer), shape: known.shape };
    const { votes } = lookAt(known, image);
    const history = route(votes, { ...known.routing, ...options, logits: known.logits });
    const last = history.at(-1), keep = last.lengths.indexOf(Math.max(...last.lengths));
    for (const { couplings, orphans, lengths: all } of history) {
      made.couplings.push(...couplings, ...(orphans ?? []));
      made.lengths.push(...all);
    }
    made.drawn.push(...reconstruct(known, last.poses, keep).data);
  }
  return Object.fromEntries(Object.entries(made).map(([name, all]) => [name, text(all)]));
}"""
TEXTS = """
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const text = (numbers) => {
  const letters = new Uint8Array(Float32Array.from(numbers).buffer);
  let made = "";
  for (let k = 0; k < letters.length; k += 8192)
    made += String.fromCharCode(...letters.subarray(k, k + 8192));
  return btoa(made);
};
"""


@pytest.fixture(scope="module")
def script(browser):
    """Return a function that evaluates JavaScript in a page with both scripts."""
    page = browser.new_page()
    for name in ("capsnet", "images"):
        page.add_script_tag(content=static(f"{name}.js"))
    page.add_script_tag(content=TEXTS)
    yield page.evaluate
    page.close()


def as_text(array):
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()


def from_text(text):
    return np.frombuffer(base64.b64decode(text), "<f4")


def in_script(script, model, images, **options):
    found = script(RUN, [describe(model), [as_text(image) for image in images], options])
    return {name: from_text(text) for name, text in found.items()}


@pytest.fixture(scope="module")
def stored():
    return explored.stored()


def assert_close(found, expected):
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array.ravel(), atol=CLOSE, rtol=0, err_msg=name)


@pytest.mark.parametrize("routing, update", explored.OFFERED)
def test_all_routings_equal_those_of_python_on_200_images(script, stored, routing, update):
    model, images = stored
    turned = []
    for degrees, scale, right, down in TURNS:
        matrices = np.repeat(affine.rotation(np.array([degrees])) * scale, len(images), axis=0)
        moves = np.tile([float(right), float(down)], (len(images), 1))
        turned.append(affine.transformed(images, matrices, moves, size=28))
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, images.shape)
    images = np.concatenate([*turned, np.clip(images + noise, 0, 1)]).astype(np.float32)
    assert len(images) >= 200
    expected = explored.values(model, images, routing, update)
    found = in_script(script, model, images, routing=routing, update=update, iterations=3)
    assert_close(found, expected)


COUNTS = [(*rule, r) for rule in explored.OFFERED for r in (1, 2, 10)]


@pytest.mark.parametrize(
    "routing, update, iterations",
    [
        one for one in COUNTS if one[1] in ("accumulate", None) or one[2] > 1
    ],  # else it has no effect
)
def test_every_number_of_iterations_gives_the_values_of_python(
    script, stored, routing, update, iterations
):
    model, images = stored
    expected = explored.values(model, images[::6], routing, update, iterations)
    options = {"routing": routing, "update": update, "iterations": iterations}
    assert_close(in_script(script, model, images[::6], **options), expected)


def test_the_stored_values_are_those_of_the_script(script, stored):
    model, images = stored
    known = np.load(explored.FILE)
    for routing, update in explored.OFFERED:
        some = images[list(explored.FEW)]
        found = in_script(script, model, some, routing=routing, update=update, iterations=3)
        for what, array in found.items():
            expected = known[f"{routing} {update} {what}"].ravel() / 65535
            np.testing.assert_allclose(array, expected, atol=CLOSE)


@pytest.mark.parametrize(
    "shape, classes, options",
    [
        ((3, 24, 27), 20, {}),
        ((1, 21, 40), 2, {"squash": "tanh", "primary_squash": "half"}),
        ((1, 28, 28), 3, {"squash": "exp", "routing": "leaky", "update": "recompute"}),
        ((1, 28, 28), 3, {"squash": "rational", "routing": "distance", "inverse_temperature": 3.0}),
        ((1, 28, 28), 4, {"squash": "none", "primary_squash": "paper", "inverse_temperature": 0.5}),
        ((1, 28, 28), 4, {"routing": "learned"}),
        ((1, 28, 28), 4, {"update": "recompute", "gradient": "implicit", "iterations": 20}),
        ((3, 32, 32), 5, {"preset": "paper", "iterations": 1}),
    ],
)
def test_networks_of_any_form_give_the_values_of_python(script, shape, classes, options):
    rng = np.random.default_rng(1)
    model = build("capsnet", shape, classes, **{"preset": "small"} | options).eval()
    for parameter in model.parameters():  # as large as after training, and with biases
        parameter.data += rng.normal(0, 0.02, parameter.shape).astype(np.float32)
    model, images = rounded(model), rng.random((3, *shape), dtype=np.float32)
    with no_grad():
        routed = model(Tensor(images))
    found = in_script(script, model, images)
    own = found["couplings"].reshape(3, -1, routed.couplings.shape[2], routed.couplings.shape[1])
    expected = routed.couplings.data.swapaxes(1, 2)
    np.testing.assert_allclose(own[:, -1], expected, atol=CLOSE)
    own = found["lengths"].reshape(3, -1, classes)
    np.testing.assert_allclose(own[:, -1], routed.activations.data, atol=CLOSE)


@pytest.mark.parametrize(
    ("multi", "loss"), [(False, "cross-entropy"), (True, "cross-entropy"), (False, "margin")]
)
def test_the_network_beside_gives_the_probabilities_of_python(script, multi, loss):
    shape, rng = (1, 28, 28), np.random.default_rng(0)
    model = rounded(build("dense-cnn", shape, 10, preset="small"))
    capsnet = build("capsnet", shape, 10, preset="small")
    model.multi, model.loss = multi, loss
    capsnet.multi = multi
    images = rng.random((3, *shape), dtype=np.float32)
    with no_grad():
        expected = model.probabilities(model(Tensor(images)).activations).data
    code = """([network, texts]) => {
      const known = withWeights(network);
      return texts.map((one) => Array.from(
        denseScores(known, { data: new Float32Array(bytes(one).buffer), shape: known.shape })));
    }"""
    found = script(code, [describe_beside(model, capsnet), [as_text(image) for image in images]])
    np.testing.assert_allclose(found, expected, atol=CLOSE)


def test_every_half_is_decoded_exactly(script):
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    found = from_text(script("(all) => text(fromHalves(all))", halves(finite)))
    assert np.array_equal(found, finite.astype(np.float32))


# ---- images


IMAGE = "{ data: new Float32Array(bytes(pixels).buffer), shape }"


@pytest.mark.parametrize("size", [(280, 280), (31, 90), (28, 28), (12, 16)])
@pytest.mark.parametrize("seed", range(3))
def test_strokes_are_centered_as_those_of_mnist(script, size, seed):
    rng, image = np.random.default_rng(seed), np.zeros((1, *size), np.float32)
    top, left = rng.integers(0, size[0] // 2), rng.integers(0, size[1] // 2)
    ink = rng.random((size[0] // 3, size[1] // 4), dtype=np.float32)
    image[0, top : top + len(ink), left : left + ink.shape[1]] = ink
    code = f"([pixels, shape]) => text(centred({IMAGE}, 28, 28).data)"
    found = from_text(script(code, [as_text(image), list(image.shape)]))
    np.testing.assert_allclose(found, centre(image, (28, 28)).ravel(), atol=1e-5)


def test_an_empty_paper_stays_empty(script):
    code = f"([pixels, shape]) => text(centred({IMAGE}, 28, 28).data)"
    image = np.zeros((1, 280, 280), np.float32)
    assert not from_text(script(code, [as_text(image), [1, 280, 280]])).any()


@pytest.mark.parametrize("shape, channels", [((3, 50, 31), 1), ((1, 10, 30), 3), ((3, 28, 28), 3)])
def test_files_are_fitted_as_by_minicaps(script, shape, channels):
    image = np.random.default_rng(0).random(shape, dtype=np.float32)
    code = f"([pixels, shape, c]) => text(fit(inChannels({IMAGE}, c), 28, 28).data)"
    found = from_text(script(code, [as_text(image), list(shape), channels]))
    np.testing.assert_allclose(found, fit(image, (28, 28), channels).ravel(), atol=1e-5)


@pytest.mark.parametrize(
    "degrees, zoom, right, down", [(30, 1, 0, 0), (-100, 1.4, 3, -5), (0, 0.5, 0, 2)]
)
def test_images_are_turned_as_by_minicaps(script, degrees, zoom, right, down):
    image = np.random.default_rng(0).random((3, 20, 28), dtype=np.float32)
    square = np.zeros((3, 28, 28), np.float32)
    square[:, 4:24] = image
    change = {"rotate": degrees, "zoom": zoom, "right": right, "down": down}
    code = f"([pixels, shape, change]) => text(transformed({IMAGE}, change, 0).data)"
    found = from_text(script(code, [as_text(square), [3, 28, 28], change]))
    matrices, moves = affine.rotation(np.array([degrees])) * zoom, np.array([[right, down]], float)
    expected = affine.transformed(square[None], matrices, moves, size=28)
    np.testing.assert_allclose(found, expected.ravel(), atol=1e-5)
