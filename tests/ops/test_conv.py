"""Convolution and pooling, compared with SciPy, a plain loop and the plain version."""

import functools
import tracemalloc
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import differentiate
from tensors import draw as normal

from minicaps import Tensor, ops
from minicaps.ops import conv, fourier, patches

SPECTRA = conv, "worthwhile", lambda image, kernel, stride: len(image) > 0
NOT_IN_CACHE = conv, "fits", lambda *sizes: False
METHODS = [
    [SPECTRA],
    *([NOT_IN_CACHE, (conv, "WORKSPACE", room)] for room in (1, 1000, 2**30)),
    *([(patches, "ROOM", room)] for room in (2**12, 2**20)),  # the first holds few images
]

pytestmark = pytest.mark.filterwarnings("error")


@st.composite
def convolutions(draw):
    """Return images, kernels, bias, options, and a context that forces the method."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = st.integers(1, 4)
    b, c, o, k, m = draw(st.integers(0, 4)), draw(size), draw(size), draw(size), draw(size)
    padding, stride = draw(st.integers(0, 2)), draw(st.integers(1, 5))
    h = draw(st.integers(max(1, k - 2 * padding), 9))
    w = draw(st.integers(max(1, m - 2 * padding), 9))
    x, weight, bias = (rng.normal(size=s) for s in ((b, c, h, w), (o, c, k, m), (o,)))
    x = draw(st.sampled_from([lambda x: x, channels_last_in_memory, np.asfortranarray]))(x)
    bias = draw(st.sampled_from([bias, None]))
    method = ExitStack()
    for place, name, value in draw(st.sampled_from(METHODS)):
        method.enter_context(patch.object(place, name, value))
    options = {"stride": stride, "padding": padding, "relu": draw(st.booleans())}
    return x, weight, bias, options, method


def channels_last_in_memory(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


many = settings(max_examples=60, deadline=None, derandomize=True, database=None)


@many
@given(convolutions())
def test_fast_equals_plain(drawn):
    x, weight, bias, options, method = drawn
    arrays = [x, weight] if bias is None else [x, weight, bias]
    expected = differentiate(ops.conv2d_plain, arrays, **options)
    with method:
        found = differentiate(ops.conv2d, arrays, **options)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@many
@given(convolutions())
def test_conv2d_is_the_correlation_of_scipy(drawn):
    x, weight, bias, options, method = drawn
    p, s = options["padding"], options["stride"]
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    with method:
        y = ops.conv2d(x, weight, bias, **options).data
    for b, o in np.ndindex(y.shape[:2]):
        expected = scipy.signal.correlate(padded[b], weight[o], mode="valid", method="direct")
        shift = 0 if bias is None else bias[o]
        expected = expected[0, ::s, ::s] + shift
        expected = np.maximum(expected, 0) if options["relu"] else expected
        np.testing.assert_allclose(y[b, o], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_spectra_lose_no_precision(dtype):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s) for s in ((3, 8, 20, 20), (6, 8, 9, 9))]
    exact = differentiate(ops.conv2d_plain, arrays, stride=2)
    with patch.object(*SPECTRA):
        found = differentiate(
            ops.conv2d, [a.astype(dtype) for a in arrays], exact[0].astype(dtype), stride=2
        )
    exact = differentiate(ops.conv2d_plain, arrays, exact[0], stride=2)
    for a, b in zip(found, exact, strict=True):
        assert a.dtype == dtype
        assert np.abs(a - b).max() < 8 * np.finfo(dtype).eps * np.abs(b).max()


@pytest.mark.parametrize("dtypes", [(np.float32, np.float64), (np.float64, np.float32)])
def test_spectra_of_two_precisions_have_the_higher_one(dtypes):
    rng = np.random.default_rng(0)
    arrays = [
        rng.normal(size=shape).astype(dtype)
        for shape, dtype in zip(((3, 8, 20, 20), (6, 8, 9, 9)), dtypes, strict=True)
    ]
    with patch.object(*SPECTRA):
        y = ops.conv2d(*arrays).data
    exact = ops.conv2d_plain(*(a.astype(np.float64) for a in arrays)).data
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, exact, rtol=1e-10, atol=1e-10)


def test_spectra_are_chosen_where_they_save():
    """Counts derived by hand for 128 images of 20×20, 256 to 256 channels, 9×9, stride 2."""
    sizes = (128, 20, 20, 256), (256, 9, 9, 256)
    # 4 frequencies are real, 48 are not and count three; 4 phases of 256 channels
    products = 3 * (4 + 3 * 48) * 128 * 1024 * 256
    # Of n columns: 10 row frequencies of n rows, then 2 real ones by 2 + 3·4, 4 others by 30.
    planes, kernels, outputs = (10 * n * n + 2 * 14 * n + 4 * 30 * 2 * n for n in (10, 5, 6))
    planes = 2 * 128 * 1024 * planes + 2 * 128 * 256 * outputs
    patches = 3 * 128 * 36 * 81 * 256 * 256
    counted = patches, products, planes, 3 * 1024 * 256 * kernels
    assert fourier.multiplications(*sizes, stride=2) == counted

    def chosen(image, kernel, stride, dtype=np.float32):
        return fourier.worthwhile(np.empty(image, dtype), np.empty(kernel, dtype), stride)

    assert chosen(*sizes, 2)
    assert not chosen(*sizes, 2, np.float16)
    assert not chosen((16, 20, 20, 256), (256, 9, 9, 256), 2)  # few images: the kernel's transform
    assert chosen((32, 20, 20, 256), (256, 9, 9, 256), 2)
    assert not chosen((128, 28, 28, 1), (256, 9, 9, 1), 1)  # the first layer
    assert not chosen((128, 18, 18, 1), (256, 9, 9, 1), 1)  # of smaller images
    assert chosen((64, 26, 26, 64), (64, 3, 3, 64), 1)  # of capsule-cnn
    assert not chosen((64, 12, 12, 64), (64, 3, 3, 64), 2)
    assert not chosen((128, 24, 24, 32), (64, 5, 5, 32), 2)  # of the small preset
    assert not chosen((0, 20, 20, 256), (256, 9, 9, 256), 2)


def test_a_small_workspace_means_several_blocks():
    blocks = []
    original = conv._blocks

    def counted(*args):
        blocks.append(original(*args))
        return blocks[-1]

    x, weight = np.ones((5, 2, 6, 6)), np.ones((3, 2, 3, 3))
    bytes_of_an_image = 4 * 4 * 2 * 3 * 3 * 8
    with (
        patch.object(*NOT_IN_CACHE),
        patch.object(conv, "_blocks", counted),
        patch.object(conv, "WORKSPACE", 2 * bytes_of_an_image),
    ):
        ops.conv2d(x, weight)
    [(images, areas)] = blocks
    assert images == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert areas == [(n, slice(0, 4), slice(0, 4)) for n in images]


@pytest.mark.parametrize("rows", [2.5, 1, 0.4])
def test_a_large_image_is_cut_into_parts(rows):
    """Rows of one image if they fit into the workspace, and else parts of a row."""
    x, w, g = normal(1, 2, 30, 40), normal(3, 2, 5, 5, seed=1), normal(1, 3, 13, 18, seed=2)
    made, original = [], conv._patches

    def counted(*args):
        made.append(original(*args))
        return made[-1]

    room = int(rows * 18 * w[0].nbytes)
    convolve = functools.partial(ops.conv2d, stride=2)
    with (
        patch.object(*NOT_IN_CACHE),
        patch.object(conv, "WORKSPACE", room),
        patch.object(conv, "_patches", counted),
    ):
        found = differentiate(convolve, [x, w], g)
    plain = differentiate(functools.partial(ops.conv2d_plain, stride=2), [x, w], g)
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert len(made) > 2 and max(a.nbytes for a in made) <= room
    assert sum(len(a) for a in made) == 2 * 13 * 18


def test_the_small_preset_convolves_in_the_cache():
    def fits(image, kernel, stride, dtype="float32", bias="float32"):
        arrays = np.empty(image, dtype), np.empty(kernel, dtype), np.empty(kernel[0], bias)
        return patches.fits(*arrays, stride)

    small = (128, 24, 24, 32), (64, 5, 5, 32), 2
    assert fits((128, 28, 28, 1), (32, 5, 5, 1), 1) and fits(*small)
    assert fits((128, 10, 10, 64), (64, 5, 5, 64), 2)
    assert not fits((128, 20, 20, 256), (256, 9, 9, 256), 2)  # of the paper's preset
    assert not fits((1, 2000, 2000, 3), (8, 3, 3, 3), 1)  # one large image
    assert fits(*small, "float64", "float64")
    assert not fits(*small, "float64") and not fits(*small, "float16", "float16")


def test_patches_in_the_cache_take_no_more_memory_for_more_images():
    """Beside the results, only the workspaces of the threads are allocated."""
    image, kernel = np.ones((400, 12, 12, 8), np.float32), np.ones((8, 5, 5, 8), np.float32)
    all_patches = 400 * 8 * 8 * 5 * 5 * 8 * 4  # bytes

    def beyond_results(images):
        tracemalloc.start()
        try:
            y, pull = patches.in_cache(image[:images], kernel, None, 1, True)
            gradients = pull(y, (True, True, True))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        return peak - sum(a.nbytes for a in (y, *gradients))

    beyond_results(4)  # starts the threads
    assert beyond_results(400) < all_patches / 4


def test_conv2d_by_hand():
    x = np.arange(9.0).reshape(1, 1, 3, 3)
    weight = np.array([[[[1.0, 0.0], [0.0, 2.0]]]])
    for function in (ops.conv2d, ops.conv2d_plain):
        y, x_grad, weight_grad, bias_grad = differentiate(
            function, [x, weight, np.array([10.0])], cotangent=np.ones((1, 1, 2, 2))
        )
        np.testing.assert_array_equal(y, [[[[18, 21], [27, 30]]]])
        np.testing.assert_array_equal(x_grad, [[[[1, 1, 0], [1, 3, 2], [0, 2, 2]]]])
        np.testing.assert_array_equal(weight_grad, [[[[8, 12], [20, 24]]]])
        np.testing.assert_array_equal(bias_grad, [4])


def test_precisions_mix_alike():
    for dtypes in ("ffd", "fdf", "dff", "eff", "eee", "Bff"):
        shapes = ((2, 1, 4, 4), (3, 1, 2, 2), (3,))
        arrays = [np.ones(s, d) for s, d in zip(shapes, dtypes, strict=True)]
        assert ops.conv2d(*arrays).dtype == ops.conv2d_plain(*arrays).dtype
        tensors = [Tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
        ops.conv2d(*tensors).sum().backward()
        for t in tensors:
            assert t.grad is None or t.grad.dtype == t.dtype


IMAGES, KERNELS = np.ones((1, 2, 5, 6)), np.ones((3, 2, 3, 3))


@pytest.mark.parametrize("function", [ops.conv2d, ops.conv2d_plain])
@pytest.mark.parametrize(
    ("x", "weight", "bias", "options", "message"),
    [
        (IMAGES[0], KERNELS, None, {}, r"needs images \(B, C, H, W\) .* not \(2, 5, 6\) and"),
        (IMAGES, KERNELS[0], None, {}, r"kernels \(O, C, K, L\), not .* and \(2, 3, 3\)"),
        (IMAGES[:, :1], KERNELS, None, {}, "the images have 1 channels but the kernels 2"),
        (IMAGES, KERNELS, np.ones(2), {}, r"bias must have shape \(3,\), not \(2,\)"),
        (IMAGES, KERNELS, np.ones((3, 1)), {}, r"bias must have shape \(3,\), not \(3, 1\)"),
        (IMAGES, KERNELS, None, {"stride": 0}, "window and stride must be positive"),
        (IMAGES, KERNELS, None, {"padding": -1}, "and padding nonnegative"),
        (IMAGES[:, :, :2], KERNELS, None, {}, "3×3 window does not fit into images of 2×6, p"),
        (IMAGES[..., :1], KERNELS, None, {}, "3×3 window does not fit into images of 5×1"),
        (IMAGES, KERNELS[..., :0], None, {}, "window and stride must be positive"),
    ],
)
def test_conv2d_refuses(function, x, weight, bias, options, message):
    with pytest.raises(ValueError, match=message):
        function(Tensor(x), Tensor(weight), None if bias is None else Tensor(bias), **options)


# --- Pooling -------------------------------------------------------------------------------------


@settings(many, max_examples=30)
@given(
    st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(4, 8), st.integers(4, 8)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.integers(1, 5),
    st.sampled_from([lambda x: x, channels_last_in_memory, np.asfortranarray]),
)
def test_pools_are_those_of_a_plain_loop(shape, window, stride, layout):
    x = layout(np.random.default_rng(0).normal(size=shape))
    rows, columns = ((n - k) // stride + 1 for n, k in zip(shape[2:], window, strict=True))
    for pool, reduce in ((ops.avg_pool2d, np.mean), (ops.max_pool2d, np.max)):
        y = pool(Tensor(x), window=window, stride=stride).data
        assert y.shape == (*shape[:2], rows, columns)
        for b, c, p, q in np.ndindex(y.shape):
            i, j = stride * p, stride * q
            expected = reduce(x[b, c, i : i + window[0], j : j + window[1]])
            np.testing.assert_allclose(y[b, c, p, q], expected, rtol=1e-12)


@pytest.mark.parametrize("pool", [ops.avg_pool2d, ops.max_pool2d])
def test_the_stride_of_a_pool_is_its_window(pool):
    x = np.random.default_rng(0).normal(size=(2, 3, 7, 6))
    for options, twin in (({}, 2), ({"window": 3}, 3), ({"window": (2, 2)}, 2)):
        expected = pool(Tensor(x), window=twin, stride=twin)
        np.testing.assert_array_equal(pool(Tensor(x), **options).data, expected.data)


def test_equal_maxima_of_a_window_share_the_gradient():
    x = Tensor(np.array([[[[2.0, 2.0, 5.0], [1.0, 2.0, 0.0]]]]), requires_grad=True)
    ops.max_pool2d(x, window=2, stride=1).backward(np.array([[[[3.0, 7.0]]]]))
    np.testing.assert_allclose(x.grad, [[[[1, 1, 7], [0, 1, 0]]]])


def test_global_average():
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    np.testing.assert_allclose(ops.global_avg_pool(Tensor(x)).data, x.mean(axis=(2, 3)))


@pytest.mark.parametrize("pool", [ops.avg_pool2d, ops.max_pool2d])
@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 4, 4), {}, r"pooling needs images \(B, C, H, W\), not \(1, 4, 4\)"),
        ((1, 1, 4, 4), {"window": (2, 3)}, "specify a stride for windows of 2×3"),
        ((1, 1, 4, 4), {"window": 0}, "window and stride must be positive"),
        ((1, 1, 4, 4), {"stride": 0}, "window and stride must be positive"),
        ((1, 1, 4, 3), {"window": 4}, "4×4 window does not fit into images of 4×3"),
    ],
)
def test_pools_refuse(pool, shape, options, message):
    with pytest.raises(ValueError, match=message):
        pool(Tensor(np.ones(shape)), **options)


def test_spectra_are_not_for_integers_or_large_planes():
    def chosen(dtype, image, kernel):
        return fourier.worthwhile(np.empty(image, dtype), np.empty(kernel, dtype), 1)

    sizes = (32, 12, 12, 64), (64, 7, 7, 64)
    assert chosen(np.float32, *sizes) and chosen(np.float64, *sizes)
    for dtype in (np.int64, np.int32, np.longdouble, bool):
        assert not chosen(dtype, *sizes)
    assert not chosen(np.float32, (8, 80, 80, 64), (64, 21, 21, 64))
    x = np.arange(32 * 64 * 12 * 12).reshape(32, 64, 12, 12) % 5
    w = np.arange(64 * 64 * 7 * 7).reshape(64, 64, 7, 7) % 7 - 3
    exact = ops.conv2d_plain(Tensor(x[:1]), Tensor(w)).data
    np.testing.assert_array_equal(ops.conv2d(Tensor(x), Tensor(w)).data[:1], exact)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_broken_image_leaves_the_others_alone(bad):
    x, w = np.ones((3, 2, 9, 9)), np.ones((4, 2, 5, 5))
    x[1, 0, 4, 4] = bad
    with patch.object(*SPECTRA), np.errstate(invalid="ignore"):
        y, gx, gw = differentiate(ops.conv2d, [x, w], stride=2)
    assert np.isfinite(y[[0, 2]]).all() and np.isfinite(gx).all()
    assert not np.isfinite(y[1]).all() and not np.isfinite(gw).all()


def test_whole_numbers_of_numpy_are_whole_numbers():
    options = {"stride": np.int64(2), "padding": np.int32(1)}
    for function in (ops.conv2d, ops.conv2d_plain):
        assert function(Tensor(IMAGES), Tensor(KERNELS), **options).shape == (1, 3, 3, 3)


@pytest.mark.parametrize("options", [{"stride": (1, 1)}, {"stride": 1.0}, {"padding": 0.5}])
def test_stride_and_padding_are_whole_numbers(options):
    for function in (ops.conv2d, ops.conv2d_plain):
        with pytest.raises(TypeError, match="stride and padding must be integers"):
            function(Tensor(IMAGES), Tensor(KERNELS), **options)


@pytest.mark.parametrize(
    ("x", "weight"),
    [((2, 0, 8, 8), (2, 0, 3, 3)), ((2, 3, 8, 8), (0, 3, 3, 3)), ((0, 3, 8, 8), (2, 3, 3, 3))],
)
def test_nothing_convolved_is_nothing(x, weight):
    arrays = [np.ones(x), np.ones(weight)]
    found, plain = (differentiate(f, arrays) for f in (ops.conv2d, ops.conv2d_plain))
    for a, b in zip(found, plain, strict=True):
        assert a.shape == b.shape and not a.any() and not b.any()
