"""The stand-in for CuPy raises errors where CuPy does, and computes the results of NumPy."""

import copy
import importlib.util
import json
import operator
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from strict_cupy import API

from minicaps.backend import array_module, choose_device, to_host

HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.fixture
def xp(strict_cupy):
    return strict_cupy


@pytest.fixture
def host():
    return np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def x(xp, host):
    return xp.asarray(host)


def syncs(xp):
    return xp.host_syncs.total()


# --- The recorded list ---------------------------------------------------------------------------


def test_the_recorded_list_names_its_cupy(xp):
    assert xp.__version__ == API["cupy"]
    assert int(API["cupy"].split(".")[0]) >= 14
    assert API["functions"]["sum"] == "a, axis=None, dtype=None, out=None, keepdims=False"
    assert API["ufuncs"]["add"] == [2, 1, True]


def test_every_recorded_name_is_offered_or_explained(xp, x):
    for name in [*API["functions"], *API["ufuncs"], *API["numpy"]]:
        operator.attrgetter(name)(xp)
    for name in API["methods"]:
        assert callable(getattr(x, name))
    for name in set(API["others"]) - {"random", "cuda", "fft", "lib", "linalg", "ndarray", "ufunc"}:
        with pytest.raises(NotImplementedError, match=rf"CuPy .* has {name}"):
            operator.attrgetter(name)(xp)


def test_the_arrays_have_no_operator_that_cupy_lacks(xp):
    of_python = {"__getattr__", "__weakref__"}
    own = {name for name in vars(xp.ndarray) if name.startswith("__")}
    assert own - of_python - set(dir(object)) <= set(API["special"])
    assert not {"__imatmul__", "__index__", "__contains__", "__round__"} & own


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="compares with a real CuPy")
def test_the_recorded_list_is_that_of_the_installed_cupy():
    code = "import json, make_cupy_api; print(json.dumps(make_cupy_api.read_api()))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=HELPERS, capture_output=True, text=True, check=True
    )
    installed = json.loads(run.stdout)
    kinds = ("functions", "ufuncs", "methods", "attributes", "special")
    same_version = installed["cupy"].split(".")[:2] == API["cupy"].split(".")[:2]
    for kind in kinds:
        if same_version and kind != "special":  # which also depends on the version of Python
            assert installed[kind] == API[kind]
        else:
            assert set(API[kind]) <= set(installed[kind])


# --- Recognized as CuPy --------------------------------------------------------------------------


def test_the_backend_takes_it_for_cupy(xp, x, host):
    assert array_module(x) is xp
    assert array_module(host) is np
    device = choose_device("gpu")
    assert device.kind == "gpu" and device.xp is xp and "stand-in" in device.name
    np.testing.assert_array_equal(to_host(x), host)


def test_cupyx_cannot_be_imported(xp):
    with pytest.raises(ImportError):
        import cupyx  # noqa: F401


# --- Conversion to NumPy only by .get() ----------------------------------------------------------


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        np.array,
        np.float32,
        np.sum,
        np.exp,
        np.shape,
        memoryview,
        lambda x: np.add(x, 1),
        lambda x: np.concatenate([x, x]),
        lambda x: np.array([x[0, 0], x[0, 1]]),
        lambda x: np.zeros(3) @ x,
        lambda x: np.zeros((3, 4)).__setitem__(..., x),
    ],
)
def test_no_implicit_conversion(x, convert):
    with pytest.raises(TypeError):
        convert(x)


def test_the_conversion_error_says_what_to_do(x):
    with pytest.raises(TypeError, match="Implicit conversion to a NumPy array is not allowed"):
        np.asarray(x)


def test_get_and_asarray_copy(xp, x, host):
    host[0, 0] = 100
    assert float(x[0, 0]) == 0
    out = x.get()
    out[0, 0] = 100
    assert float(x[0, 0]) == 0
    assert xp.asarray(x) is x
    assert xp.asarray(x, dtype=np.float64).dtype == np.float64


# --- No mixed operands ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mix",
    [
        lambda xp, x, h: x + h,
        lambda xp, x, h: h + x,
        lambda xp, x, h: h * x,
        lambda xp, x, h: x @ h.T,
        lambda xp, x, h: h.T @ x,
        lambda xp, x, h: x == h,
        lambda xp, x, h: h < x,
        lambda xp, x, h: operator.iadd(x, h),
        lambda xp, x, h: operator.iadd(h, x),
        lambda xp, x, h: operator.add(x, [1.0] * 4),
        lambda xp, x, h: xp.add(x, h),
        lambda xp, x, h: xp.add(x, x, out=h),
        lambda xp, x, h: xp.exp(h),
        lambda xp, x, h: xp.sum(h),
        lambda xp, x, h: xp.sum([1.0, 2.0]),
        lambda xp, x, h: xp.where(x > 0, h, x),
        lambda xp, x, h: xp.where(h > 0, x, x),
        lambda xp, x, h: xp.concatenate([x, h]),
        lambda xp, x, h: xp.stack([x, 1.0]),
        lambda xp, x, h: xp.matmul(x, h.T),
        lambda xp, x, h: xp.tensordot(x, h),
        lambda xp, x, h: xp.einsum("ij,ij->i", x, h),
        lambda xp, x, h: xp.broadcast_to(1.0, (2, 3)),
        lambda xp, x, h: xp.add.at(x, 0, h[0]),
        lambda xp, x, h: xp.add.at(h, 0, 1.0),
        lambda xp, x, h: xp.copyto(h, x),
        lambda xp, x, h: x.dot(h.T),
    ],
)
def test_host_arrays_are_refused(xp, x, host, mix):
    with pytest.raises(TypeError):
        mix(xp, x, host)
    np.testing.assert_array_equal(x.get(), host)


def test_the_error_names_the_type(x, host):
    with pytest.raises(TypeError, match=r"Unsupported type <class 'numpy.ndarray'>"):
        x * host


def test_host_arrays_cannot_be_assigned(x, host):
    with pytest.raises(ValueError, match=r"non-scalar numpy\.ndarray cannot be used for fill"):
        x[...] = host
    with pytest.raises(TypeError, match="Unsupported type"):
        x[[0, 1]] = host[:2]
    x[...] = np.float32(3)
    x[0] = 4
    assert x.get().sum() == 8 * 3 + 4 * 4


def test_what_defers_to_its_own_operators_is_asked(x):
    class Deferring:
        __array_ufunc__ = None

        def __radd__(self, other):
            return "asked"

    assert x + Deferring() == "asked"


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, bool])
@pytest.mark.parametrize("other", [2, 2.5, True, np.float32(2), np.float64(2), np.int64(2)])
@pytest.mark.parametrize("operation", [operator.add, operator.mul, operator.truediv, operator.pow])
def test_numbers_promote_as_in_numpy_2(xp, dtype, other, operation):
    host = np.ones(3, dtype)
    assert operation(xp.asarray(host), other).dtype == operation(host, other).dtype
    assert operation(other, xp.asarray(host)).dtype == operation(other, host).dtype


# --- 0-d arrays and host synchronization ---------------------------------------------------------


@pytest.mark.parametrize(
    "reduce",
    [
        lambda xp, x: x.sum(),
        lambda xp, x: x.max(),
        lambda xp, x: xp.mean(x),
        lambda xp, x: x[1, 2],
        lambda xp, x: x.argmax(),
        lambda xp, x: x.sum() * 2,
        lambda xp, x: xp.exp(1.0),
        lambda xp, x: xp.allclose(x, x),
        lambda xp, x: xp.count_nonzero(x),
        lambda xp, x: xp.linalg.norm(x),
        lambda xp, x: next(iter(x[0])),
    ],
)
def test_a_single_value_is_a_0d_array(xp, x, reduce):
    value = reduce(xp, x)
    assert isinstance(value, xp.ndarray) and value.shape == ()
    with pytest.raises(TypeError):
        range(value)


@pytest.mark.parametrize(
    "wait",
    [
        lambda xp, x: x.get(),
        lambda xp, x: float(x.sum()),
        lambda xp, x: int(x.sum()),
        lambda xp, x: bool(x.sum() > 1),
        lambda xp, x: x.sum().item(),
        lambda xp, x: x.tolist(),
        lambda xp, x: f"{x.sum():.3f} ",
        lambda xp, x: repr(x),
        lambda xp, x: xp.asnumpy(x),
        lambda xp, x: x[x > 3],
        lambda xp, x: x.__setitem__(x > 3, 0),
        lambda xp, x: xp.nonzero(x),
        lambda xp, x: x.nonzero(),
        lambda xp, x: xp.where(x > 3),
        lambda xp, x: xp.unique(x),
        lambda xp, x: x.repeat(xp.asarray([1, 2, 1]), axis=0),
        lambda xp, x: xp.lib.stride_tricks.sliding_window_view(x, 2, axis=1),
        lambda xp, x: xp.cuda.get_current_stream().synchronize(),
    ],
)
def test_waiting_for_the_device_is_counted(xp, x, wait):
    wait(xp, x)
    assert syncs(xp) == 1


def test_computing_does_not_wait(xp, x):
    y = xp.where(x > 3, x, 0.0) @ x.T
    y += xp.einsum("ij,kj->ik", x, x)
    xp.add.at(y, xp.asarray([0, 0]), 1.0)
    y[0, 0] = y.max()
    xp.lib.stride_tricks.as_strided(x, (2, 2, 2), (16, 4, 4)).sum(axis=(0, 1))
    assert len(y) == 3 and y.size == 9 and [row.shape for row in y] == [(3,)] * 3
    assert syncs(xp) == 0


@pytest.mark.parametrize(
    "copy",
    [
        lambda xp, x, host: xp.asarray(host),
        lambda xp, x, host: xp.array([1.0, 2.0]),
        lambda xp, x, host: xp.ascontiguousarray(host),
        lambda xp, x, host: x[np.array([0, 2])],
        lambda xp, x, host: x[:, [0, 1]],
        lambda xp, x, host: x.__setitem__(np.array([0, 2]), 1.0),
    ],
)
def test_copying_to_the_device_is_counted(xp, x, host, copy):
    xp.host_copies.clear()
    copy(xp, x, host)
    assert xp.host_copies.total() == 1
    assert syncs(xp) == 0


def test_computing_copies_nothing(xp, x):
    index = xp.asarray(np.array([0, 2]))
    xp.host_copies.clear()
    y = xp.asarray(x) * 2.0 + np.float32(3) + xp.arange(4)
    y[index] = xp.asarray(0.5)
    xp.array([y[0], y[1]])
    xp.pad(y[1:, None], ((0, 0), (1, 1), (0, 0))).fill(1.0)
    assert not xp.host_copies


# --- Only the names of CuPy ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nope", "errstate", "scatter_add", "einsum_path", "float128"])
def test_unknown_names(xp, name):
    with pytest.raises(AttributeError, match=rf"CuPy {API['cupy']} has no {name}"):
        getattr(xp, name)
    assert not hasattr(xp, name)


def test_random_numbers_come_from_numpy(xp):
    with pytest.raises(AttributeError, match="drawn with NumPy and copied to the device"):
        xp.random.normal(size=3)


@pytest.mark.parametrize("name", ["itemset", "setflags", "ctypes", "newbyteorder", "nope"])
def test_unknown_attributes(x, name):
    with pytest.raises(AttributeError, match=f"ndarray has no {name}"):
        getattr(x, name)


def test_arrays_take_no_new_attributes(x):
    with pytest.raises(AttributeError):
        x.note = 1
    with pytest.raises(AttributeError):
        x.flags.writeable = False
    with pytest.raises(AttributeError):
        x.flags.writeable  # noqa: B018 - reading is what must fail
    with pytest.raises(TypeError):
        hash(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda xp, x: xp.sum(x, where=x > 0),
        lambda xp, x: xp.max(x, initial=0),
        lambda xp, x: x.sum(where=x > 0),
        lambda xp, x: x.max(initial=0),
        lambda xp, x: xp.add(x, x, where=x > 0),
        lambda xp, x: xp.exp(x, order="F"),
        lambda xp, x: xp.einsum("ij->i", x, out=x[:, 0]),
        lambda xp, x: xp.einsum("ij->i", x, casting="safe"),
        lambda xp, x: xp.where(condition=x > 0, a=x, b=x),
        lambda xp, x: xp.take(x, [0], mode="clip"),
        lambda xp, x: xp.broadcast_to(x, (3, 4), subok=True),
        lambda xp, x: xp.lib.stride_tricks.as_strided(x, (1,), (4,), writeable=False),
        lambda xp, x: x.astype(np.float64, casting="same_kind"),
        lambda xp, x: x.item(0),
    ],
)
def test_unknown_keywords(xp, x, call):
    with pytest.raises(TypeError):
        call(xp, x)


def test_unsupported_dtypes(xp):
    for data in (np.array([None]), np.array(["a"]), np.zeros(2, np.longdouble)):
        with pytest.raises(ValueError, match="Unsupported dtype"):
            xp.asarray(data)


def test_which_ufunc_methods_work(xp, x):
    np.testing.assert_array_equal(xp.add.reduce(x, axis=1).get(), x.get().sum(axis=1))
    with pytest.raises(NotImplementedError, match=r"cupy_maximum\.reduce"):
        xp.maximum.reduce(x)
    with pytest.raises(NotImplementedError, match=r"cupy_multiply\.at"):
        xp.multiply.at(x, [0], 2.0)
    with pytest.raises(TypeError, match="does not support float32"):
        xp.subtract.at(x, [0], 2.0)
    with pytest.raises(TypeError, match="does not support int8"):
        xp.add.at(xp.zeros(3, np.int8), [0], 1)


def test_add_at_adds_repeated_indices(xp):
    target = xp.zeros((3, 2), np.float32)
    xp.add.at(target, (xp.asarray([0, 0, 2]), slice(None)), xp.asarray([[1.0], [2.0], [3.0]]))
    np.testing.assert_array_equal(target.get(), [[3, 3], [0, 0], [3, 3]])


# --- No warnings or errors where NumPy raises them -----------------------------------------------


def test_indices_in_arrays_wrap_silently(xp, x, host):
    rows = xp.asarray([0, 4, -5])  # 4 wraps to 1, -5 to 1
    for picked in (x[rows], xp.take(x, rows, axis=0), x.take(rows, axis=0), x[[0, 4, -5]]):
        np.testing.assert_array_equal(picked.get(), host[[0, 1, 1]])
    np.testing.assert_array_equal(x[:, None, rows].get(), host[:, None, [0, 0, 3]])
    np.testing.assert_array_equal(x[..., rows, rows].get(), host[[0, 1, 1], [0, 0, 3]])
    along = xp.take_along_axis(x, rows[None], axis=1)
    np.testing.assert_array_equal(along.get(), host[:, [0, 0, 3]])
    x[xp.asarray([3])] = -1.0
    xp.add.at(x, xp.asarray([3]), -1.0)
    np.testing.assert_array_equal(x[0].get(), [-2, -2, -2, -2])


def test_single_indices_out_of_range_are_errors(x):
    with pytest.raises(IndexError):
        x[3]
    with pytest.raises(IndexError):
        x[0, 0, 0]
    with pytest.raises(IndexError):
        x[x]


def test_no_floating_point_warnings(xp):
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        zero = xp.zeros(2, np.float32)
        assert np.isnan(to_host(zero / zero)).all()
        assert np.isinf(to_host(xp.log(zero))).all()
        zero += np.float32(3e38)
        zero *= 10


def test_uninitialised_memory_spoils_results(xp):
    assert np.isnan(xp.empty((2, 2), np.float32).get()).all()
    assert np.isnan(xp.empty_like(xp.zeros(3)).get()).all()
    assert xp.ndarray((2,), np.int32).get().all()


# --- Memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        lambda xp, x: x[1:],
        lambda xp, x: x[1, 2],
        lambda xp, x: x.T,
        lambda xp, x: x.reshape(-1),
        lambda xp, x: x.ravel(),
        lambda xp, x: x.transpose(1, 0),
        lambda xp, x: xp.swapaxes(x, 0, 1),
        lambda xp, x: xp.expand_dims(x, 0),
        lambda xp, x: x[None, ..., ::-1],
        lambda xp, x: xp.split(x, 3)[1],
    ],
)
def test_views_share_memory(xp, x, view):
    part = view(xp, x)
    assert part.base is not None and not part.flags.owndata
    part += 100
    assert float(x.max()) >= 100


def test_strided_views_share_memory_but_do_not_say_so(xp, x):
    part = xp.lib.stride_tricks.as_strided(x, (2, 2), (16, 4))
    assert part.base is None and part.flags.owndata
    part += 100
    assert float(x.max()) >= 100


def test_copies_do_not(xp, x):
    for fresh in (x[[0, 1]], x[x >= 0], x.copy(), copy.deepcopy(x), x + 0, x.astype(np.float32)):
        assert fresh.base is None and fresh.flags.owndata
        fresh[...] = 100
    assert float(x.max()) == 11
    assert x.astype(np.float32, copy=False) is x


def test_results_come_in_c_order(xp, x, host):
    """NumPy keeps the memory layout of the inputs, but CuPy does not."""
    assert not np.exp(host.T).flags.c_contiguous
    for result in (xp.exp(x.T), x.T + 1, x.T[:, [0, 1]], xp.where(x.T > 3, x.T, 0)):
        assert result.flags.c_contiguous
    assert x.T.flags.f_contiguous and xp.zeros_like(x.T).flags.f_contiguous


def test_results_written_to_out_are_out(xp, x, host):
    out = xp.zeros((3, 4), np.float32)
    assert xp.multiply(x, 2, out=out) is out
    assert xp.multiply(x, 2, out) is out
    total = xp.zeros(4, np.float32)
    assert x.sum(axis=0, out=total) is total
    np.testing.assert_array_equal(out.get(), 2 * host)
    np.testing.assert_array_equal(total.get(), host.sum(axis=0))
    alias = x
    alias += 1
    assert alias is x


# --- The same mathematics ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "compute",
    [
        lambda xp, x: xp.sum(x, (0, 1), keepdims=True),
        lambda xp, x: x.var(axis=1, ddof=1),
        lambda xp, x: xp.matmul(x, x.T),
        lambda xp, x: 1 - x @ x.T / 2 ** x[:3, :3],
        lambda xp, x: -abs(~(x > 3) * x),
        lambda xp, x: xp.tensordot(x, x, axes=([1], [1])),
        lambda xp, x: xp.pad(x, ((1, 1), (0, 2)), constant_values=-1.0),
        lambda xp, x: xp.concatenate([x, x], axis=1),
        lambda xp, x: xp.stack([x, x], axis=-1),
        lambda xp, x: xp.clip(x, 2, 5),
        lambda xp, x: xp.moveaxis(x[None], 0, -1),
        lambda xp, x: xp.lib.stride_tricks.sliding_window_view(x, (2, 2)),
        lambda xp, x: xp.fft.irfft2(xp.fft.rfft2(x)),
        lambda xp, x: xp.where(x > 3, x, -xp.inf),
        lambda xp, x: x.argmax(axis=1),
        lambda xp, x: xp.cumsum(x, axis=1)[::-1, 1:],
        lambda xp, x: xp.arange(5) + xp.zeros(5, bool),
        lambda xp, x: xp.full((2, 3), 7, dtype=x.dtype),
    ],
)
def test_values_and_dtypes_are_those_of_numpy(xp, x, host, compute):
    expected, result = compute(np, host), compute(xp, x)
    assert isinstance(result, xp.ndarray)
    np.testing.assert_array_equal(result.get(), expected)
    assert result.dtype == expected.dtype
