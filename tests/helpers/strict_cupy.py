"""A strict stand-in for CuPy that needs no GPU: NumPy inside, CuPy's rules outside.

`cupy` below is a module for sys.modules["cupy"] (the fixture `strict_cupy` installs it). Its arrays
wrap NumPy arrays and behave like CuPy's where code written for a CPU fails: no silent conversion to
NumPy, no mixed operands, 0-d arrays instead of scalars, only the names and keywords of the CuPy
recorded in cupy_api.json, indices that wrap, and no floating-point warnings.
`cupy.host_syncs` counts, by name, the calls that make the host wait for the device, and
`cupy.host_copies` those that copy a host array to the device (numbers are passed with a launch).

The rules are taken from cupy/_core/core.pyx, _kernel.pyx and _routines_indexing.pyx of that CuPy.
Its type promotion is that of NumPy 2 (checked for all ufuncs on all real dtypes; only sign of a
boolean differs). The stand-in is deliberately stricter than CuPy:
- np.exp(x) and np.sum(x) of a device array raise (CuPy runs its own function);
- NumPy arrays are allowed only as indices and to create arrays (some CuPy functions accept more);
- flags cannot be written (CuPy accepts x.flags.writeable = False and ignores it);
- x == y takes only arrays and numbers, and `empty` returns arrays full of NaN.
"""

import inspect
import json
import operator
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np

API = json.loads(Path(__file__).with_name("cupy_api.json").read_text())
VERSION = "CuPy " + API["cupy"]
DTYPES = "?bhilqBHILQefdFD"
NUMBERS = (bool, int, float, complex, np.generic)
# Parameters that must be device arrays, and the functions that are less strict about them.
ARRAY_PARAMETERS = {"a", "b", "x", "m", "arr", "array", "ary", "dst", "condition", "prototype"}
MAKES_ARRAYS = {"array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray"}
TAKES_NUMBERS = {"isclose", "allclose", "shape", "ndim", "nan_to_num", "iscomplexobj", "isrealobj"}
RETURNS_0D = {"allclose", "array_equal", "array_equiv", "count_nonzero"}  # NumPy: Python numbers
AT_DTYPES = {"add": "ilqILQefd", "subtract": "iI", "maximum": "ilqILQfd", "minimum": "ilqILQfd"}
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
SYNCHRONIZING = {*API["synchronizing"], "argwhere"} - {"where"}  # where(c, x, y) does not


def _sync(name):
    """Record that the host waits for the device here."""
    cupy.host_syncs[name] += 1


def _copied(name):
    """Record that an array is copied from the host to the device here."""
    cupy.host_copies[name] += 1


def _not_emulated(name):
    return NotImplementedError(
        f"{VERSION} has {name}, its stand-in has not: teach it to tests/strict_cupy.py"
    )


# --- Calls: check them against CuPy's parameters, unwrap, compute, wrap --------------------------


def _unwrap(value):
    """Return the NumPy value of an argument; reject NumPy arrays as CuPy does."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, list | tuple):
        return type(value)(map(_unwrap, value))
    return value


def _wrap(value, sources=(), keep_layout=False):
    """Return a result as device arrays; an input that was returned stays the same object.

    New arrays are C-contiguous in CuPy (NumPy's follow the inputs); views keep their strides.
    """
    for source in sources:
        if value is source._host:
            return source
    if isinstance(value, list | tuple):
        items = [_wrap(v, sources, keep_layout) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if not isinstance(value, np.ndarray | np.generic):
        return value
    host = np.asarray(value)
    if host.dtype.char not in DTYPES:
        raise ValueError(f"Unsupported dtype {host.dtype}")
    is_view = any(np.may_share_memory(host, source._host) for source in sources)
    if not (is_view or keep_layout or host.flags.c_contiguous):
        host = host.copy(order="C")
    array = object.__new__(ndarray)
    array._host = host
    return array


def _device_arrays(values):
    """Return the device arrays among `values`, including those inside lists and tuples."""
    nested = [a for v in values if isinstance(v, list | tuple) for a in _device_arrays(v)]
    return [v for v in values if isinstance(v, ndarray)] + nested


def _run(function, positional, named=None, keep_layout=False):
    """Call a NumPy function on device arrays; a device gives no floating-point warnings."""
    named = named or {}
    sources = _device_arrays([*positional, *named.values()])
    hosts = {key: _unwrap(value) for key, value in named.items()}
    with np.errstate(all="ignore"):
        result = function(*map(_unwrap, positional), **hosts)
    return _wrap(result, sources, keep_layout)


def _signature(parameters):
    return inspect.signature(eval(f"lambda {parameters}: None"))


def _bind(name, signature, args, keywords):
    """Check a call against CuPy's signature; return the arguments for NumPy's function.

    Required arguments are passed by position and the others by name, because the names of the
    former and the positions of the latter differ between the two libraries.
    """
    try:
        bound = signature.bind(*args, **keywords).arguments
    except TypeError as error:
        raise TypeError(f"{VERSION}: {name}{signature}: {error}") from None
    positional, named = [], {}
    for key, value in bound.items():
        parameter = signature.parameters[key]
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is parameter.VAR_KEYWORD:
            named |= value
        elif parameter.default is parameter.empty:
            positional.append(value)
        else:
            named[key] = value
        if key in ARRAY_PARAMETERS and name not in TAKES_NUMBERS | MAKES_ARRAYS:
            _demand_array(name, value)
        elif key in ("tup", "args") and not isinstance(value, ndarray):
            for item in value:  # arrays to be joined, or multiplied by matmul
                _demand_array(name, item)
        elif key == "repeats" and isinstance(value, ndarray):
            _sync("repeat")
    if name.rpartition(".")[2] in ("take", "put"):
        named = {"mode": "wrap"} | named
    return positional, named


def _demand_array(name, value):
    if not isinstance(value, ndarray):
        raise TypeError(f"{VERSION}: {name} takes device arrays. Unsupported type {type(value)}")


def _function(name):
    """Return the function of this name, with CuPy's signature and NumPy's computation."""
    signature = _signature(API["functions"][name])

    def function(*args, **keywords):
        positional, named = _bind(name, signature, args, keywords)
        if name in SYNCHRONIZING:
            _sync(name)
        try:
            numpy_function = operator.attrgetter(name)(np)
        except AttributeError:
            raise _not_emulated(name) from None
        result = _run(numpy_function, positional, named, "order" in signature.parameters)
        is_number = name in RETURNS_0D and not isinstance(result, ndarray)
        return _wrap(np.asarray(result)) if is_number else result

    function.__name__ = name
    return function


# --- Arrays --------------------------------------------------------------------------------------


class Flags(NamedTuple):
    """Memory layout. There is no `writeable`, because CuPy arrays cannot be made read-only."""

    c_contiguous: bool
    f_contiguous: bool
    owndata: bool


class ndarray:
    """An array on the simulated device; `_host` is its memory, used only in this file."""

    __slots__ = ("__weakref__", "_host")
    __hash__ = None
    __array_ufunc__ = None  # so that operators of NumPy's arrays and scalars defer to this class

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        if memptr is not None or strides is not None:
            raise _not_emulated("ndarray with memptr or strides")
        self._host = cupy.empty(shape, dtype, order)._host

    def __array__(self, *args, **keywords):
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_function__(self, function, types, args, keywords):
        raise TypeError(
            f"numpy.{function.__name__} got a device array: call that function of its own module"
        )

    def __getattr__(self, name):
        if name in API["attributes"]:
            raise _not_emulated(f"ndarray.{name}")
        raise AttributeError(f"{VERSION}: ndarray has no {name}")

    @property
    def base(self):
        """The array of which this is a view; unknown for results of as_strided, as in CuPy."""
        host = self._host.base
        return _wrap(host, [self]) if isinstance(host, np.ndarray) else None

    @property
    def flags(self):
        host = self._host.flags
        return Flags(host.c_contiguous, host.f_contiguous, self.base is None)

    def get(self, stream=None, order="C", out=None, blocking=True):
        _sync("get")
        if out is None:
            return self._host.copy(order=order)
        np.copyto(out, self._host, casting="no")
        return out

    def item(self):
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.get().item()

    def tolist(self):
        return self.get().tolist()

    def __format__(self, spec):
        return format(self.get(), spec)

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    def __len__(self):
        if self.ndim == 0:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self):
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        key, is_advanced = _index(self, key)
        if is_advanced:
            return _wrap(np.array(self._host[key], order="C"))
        if Ellipsis not in key:
            key = (*key, ...)  # so that one element is a 0-d view too
        return _wrap(self._host[key], [self])

    def __setitem__(self, key, value):
        key, is_advanced = _index(self, key)
        if not isinstance(value, ndarray) and np.shape(value) != ():
            if is_advanced:
                raise TypeError(f"Unsupported type {type(value)}")
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        with np.errstate(all="ignore"):
            self._host[key] = value._host if isinstance(value, ndarray) else value

    def fill(self, value):
        if isinstance(value, ndarray) and value.shape != ():
            raise ValueError("non-scalar cupy.ndarray cannot be used for fill")
        self[...] = value


def _index(array, key):
    """Return the key for NumPy and whether it has arrays, in which integers wrap silently."""
    items = [_index_item(k) for k in (key if isinstance(key, tuple) else (key,))]
    if not any(isinstance(k, np.ndarray) for k in items):
        return tuple(items), False
    spans = [_axes_of(k) for k in items]
    axis = 0
    for i, (k, span) in enumerate(zip(items, spans, strict=True)):
        if k is Ellipsis:
            axis += array.ndim - sum(spans)
        elif isinstance(k, np.ndarray) and k.dtype.kind in "iu" and array.shape[axis] > 0:
            items[i] = k % array.shape[axis]
        axis += span
    return tuple(items), True


def _index_item(k):
    is_number = np.isscalar(k) and not isinstance(k, bool | np.bool_)
    if k is None or k is Ellipsis or isinstance(k, slice) or is_number:
        return k
    host = np.asarray(k._host if isinstance(k, ndarray) else k)
    if not isinstance(k, ndarray):
        _copied("index")
    if host.dtype == bool:
        _sync("boolean index")  # the result's shape depends on the values
    return host.astype(int) if isinstance(k, list | tuple) and host.size == 0 else host


def _axes_of(k):
    """Return the number of axes that this part of an index consumes."""
    if k is None or k is Ellipsis:
        return 0
    return k.ndim if isinstance(k, np.ndarray) and k.dtype == bool else 1


def _method(name):
    """Return the method of this name, with CuPy's signature."""
    signature = _signature(API["methods"][name])

    def call(host, *args, **keywords):
        return getattr(host, name)(*args, **keywords)

    def method(self, *args, **keywords):
        if not hasattr(np.ndarray, name):
            raise _not_emulated(f"ndarray.{name}")
        positional, named = _bind(f"ndarray.{name}", signature, args, keywords)
        if f"ndarray.{name}" in SYNCHRONIZING:
            _sync(name)
        if named.pop("casting", None) is not None or named.pop("subok", None) is not None:
            raise TypeError("casting and subok are not supported yet")
        return _run(call, [self, *positional], named, "order" in signature.parameters)

    return method


def _operate(operation, left, right):
    for value in (left, right):
        if not isinstance(value, (ndarray, *NUMBERS)):
            if getattr(value, "__array_ufunc__", True) is None:
                return NotImplemented  # such as a Tensor, which can handle an array
            raise TypeError(f"Unsupported type {type(value)}")
    return _run(operation, [left, right])


def _binary(operation, swap=False):
    if swap:
        return lambda self, other: _operate(operation, other, self)
    return lambda self, other: _operate(operation, self, other)


def _unary(operation):
    return lambda self: _run(operation, [self])


def _conversion(python_type):
    return lambda self: python_type(self.get())


def _complete_ndarray():
    """Give ndarray the operators, conversions, properties and methods that follow one pattern."""
    special = {f.__name__: _conversion(f) for f in (int, float, complex, bool, str, repr)}
    for name in ("neg", "pos", "abs", "invert"):
        special[name] = _unary(getattr(operator, f"__{name}__"))
    for name in ("lt", "le", "eq", "ne", "gt", "ge"):
        special[name] = _binary(getattr(operator, f"__{name}__"))
    for name in BINARY:
        operation = getattr(operator, f"__{name}__")
        special[name], special["r" + name] = _binary(operation), _binary(operation, swap=True)
        special["i" + name] = _binary(getattr(operator, f"__i{name}__"))
    for name, method in special.items():
        if f"__{name}__" in API["special"]:  # there is no @= in CuPy: Python makes a new array
            setattr(ndarray, f"__{name}__", method)
    for name in ("shape", "strides", "dtype", "ndim", "size", "itemsize", "nbytes"):
        setattr(ndarray, name, property(operator.attrgetter(f"_host.{name}")))
    for name in ("T", "mT", "real", "imag"):
        view = _unary(operator.attrgetter(name))
        setattr(ndarray, name, property(view))
    for name in API["methods"]:
        if name not in vars(ndarray):
            setattr(ndarray, name, _method(name))


# --- Universal functions -------------------------------------------------------------------------


class ufunc:
    """A universal function, which accepts only `out`, `dtype` and `casting`, as in CuPy."""

    def __init__(self, name, nin, nout, at_works):
        self.name, self.nin, self.nout, self.at_works = name, nin, nout, at_works

    def __call__(self, *args, out=None, dtype=None, casting=None, **unknown):
        if unknown:
            raise TypeError(f"Wrong arguments {unknown}")
        if not self.nin <= len(args) <= self.nin + self.nout:
            raise TypeError(f"Wrong number of arguments for {self.name!r}: {len(args)}")
        for value in args[: self.nin]:
            if not isinstance(value, (ndarray, *NUMBERS)):
                raise TypeError(f"Unsupported type {type(value)}")
        for value in (*args[self.nin :], *(out if isinstance(out, tuple) else (out,))):
            if not isinstance(value, ndarray | None):
                raise TypeError("Output arguments type must be cupy.ndarray")
        named = {"out": out, "dtype": dtype, "casting": casting}
        named = {key: value for key, value in named.items() if value is not None}
        return _run(getattr(np, self.name), args, named)

    def at(self, a, indices, b=None):
        """Set a[indices] = self(a[indices], b) in place, including repeated indices."""
        if not self.at_works:
            raise NotImplementedError(f"`cupy_{self.name}.at` is not supported yet")
        _demand_array(f"{self.name}.at", a)
        key, is_advanced = _index(a, indices)
        if is_advanced and a.dtype.char not in AT_DTYPES.get(self.name, "ilqILQ"):
            raise TypeError(f"cupy.{self.name}.at does not support {a.dtype}")
        with np.errstate(all="ignore"):
            values = np.asarray(_unwrap(b)).astype(a.dtype)
            getattr(np, self.name).at(a._host, key, values)

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        """Reduce along an axis; CuPy has only add.reduce and multiply.reduce."""
        method = {"add": "sum", "multiply": "prod"}.get(self.name)
        if method is None:
            raise NotImplementedError(f"`cupy_{self.name}.reduce` is not supported yet")
        return getattr(array, method)(axis, dtype, out, keepdims)


# --- The functions that differ from NumPy's in more than their signature -------------------------


def _array_maker(name):
    """Return array, asarray etc., which accept NumPy arrays but never share memory with them."""
    signature = _signature(API["functions"][name])

    def make(*args, **keywords):
        (source,), named = _bind(name, signature, args, keywords)
        named.pop("blocking", None)
        if isinstance(source, ndarray):
            return _run(getattr(np, name), [source], named, keep_layout=True)
        host = source if isinstance(source, np.ndarray) else _unwrap(source)
        if np.ndim(host) > 0 and not _device_arrays([source]):
            _copied(name)
        return _wrap(np.array(getattr(np, name)(host, **named)), keep_layout=True)

    return make


def _uninitialised(name):
    """Return empty and empty_like, whose arbitrary contents are values that spoil every result."""
    make = _function(name)

    def empty(*args, **keywords):
        array = make(*args, **keywords)
        array.fill(np.nan if array.dtype.kind in "fc" else 77)
        return array

    return empty


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    return a.get(stream, order, out, blocking) if isinstance(a, ndarray) else np.asarray(a)


def get_array_module(*args):
    return cupy if any(isinstance(a, ndarray) for a in args) else np


def where(condition, x=None, y=None):
    _demand_array("where", condition)
    if x is None and y is None:
        return condition.nonzero()
    return _run(np.where, [condition, x, y])


def take_along_axis(a, indices, axis):
    size = a.size if axis is None else a.shape[axis]
    return _run(np.take_along_axis, [a, indices % size, axis])


def sliding_window_view(x, window_shape, axis=None, **keywords):
    for _ in np.atleast_1d(window_shape):  # CuPy checks each of them on the device
        _sync("sliding_window_view")
    return _function("lib.stride_tricks.sliding_window_view")(x, window_shape, axis, **keywords)


# --- The module ----------------------------------------------------------------------------------


class _Space(ModuleType):
    """A module that explains which names are missing."""

    def __getattr__(self, name):
        full = f"{self.__name__}.{name}".removeprefix("cupy.")
        if full == "random":
            raise AttributeError("random numbers are drawn with NumPy and copied to the device")
        if full in API["others"]:
            raise _not_emulated(full)
        raise AttributeError(f"{VERSION} has no {full}")


def _make_module():
    spaces = {name: _Space(f"cupy.{name}") for name in ("fft", "linalg", "lib")}
    spaces["lib.stride_tricks"] = _Space("cupy.lib.stride_tricks")
    spaces[""] = module = _Space("cupy", __doc__)
    module.fft, module.linalg, module.lib = spaces["fft"], spaces["linalg"], spaces["lib"]
    module.lib.stride_tricks = spaces["lib.stride_tricks"]
    special = {f.__name__: f for f in (asnumpy, get_array_module, where, take_along_axis)}
    special |= {name: _array_maker(name) for name in MAKES_ARRAYS}
    special |= {name: _uninitialised(name) for name in ("empty", "empty_like")}
    special["lib.stride_tricks.sliding_window_view"] = sliding_window_view
    names = {name: special.get(name) or _function(name) for name in API["functions"]}
    names |= {name: ufunc(name, *facts) for name, facts in API["ufuncs"].items()}
    names |= {name: operator.attrgetter(name)(np) for name in API["numpy"]}
    for full, value in names.items():
        space, _, name = full.rpartition(".")
        setattr(spaces[space], name, value)
    module.ndarray, module.ufunc, module.__version__ = ndarray, ufunc, API["cupy"]
    module.host_syncs, module.host_copies = Counter(), Counter()
    stream = SimpleNamespace(synchronize=lambda: _sync("stream.synchronize"))
    module.cuda = SimpleNamespace(
        runtime=SimpleNamespace(
            getDeviceCount=lambda: 1,
            getDevice=lambda: 0,
            setDevice=lambda device: None,
            getDeviceProperties=lambda device: {"name": b"strict stand-in"},
            memGetInfo=lambda: (2**30, 2**31),  # bytes: free, total
            deviceSynchronize=stream.synchronize,
        ),
        get_current_stream=lambda: stream,
        Stream=SimpleNamespace(null=stream),
    )
    return module


_complete_ndarray()
cupy = _make_module()
