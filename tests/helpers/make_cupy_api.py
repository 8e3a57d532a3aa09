"""Write cupy_api.json: every name of the installed CuPy that strict_cupy.py may offer.

Run this script (`python tests/helpers/make_cupy_api.py`) when the project adopts another version of
CuPy. It needs CuPy but no GPU, since names, signatures and docstrings can be read without one.
Parameter lists are stored as Python source, with `...` for defaults that are not literals.
"""

import ast
import inspect
import json
import re
from pathlib import Path

API_FILE = Path(__file__).with_name("cupy_api.json")
SPACES = ("", "fft", "linalg", "lib.stride_tricks")  # the modules of CuPy that are recorded


def read_api():
    """Return the recorded names of the installed CuPy as a dictionary (see the keys below)."""
    import cupy
    import numpy

    api = {
        "cupy": cupy.__version__,
        "functions": {},  # "linalg.norm" -> parameters
        "ufuncs": {},  # name -> [number of inputs, of outputs, does .at work]
        "numpy": [],  # names of objects that are NumPy's own: dtypes, constants, ...
        "others": [],  # classes, kernels, submodules, which the stand-in does not have
        "synchronizing": [],  # functions and methods that say so in their docstrings
        "methods": {},  # of ndarray -> parameters, without self
        "attributes": [],  # of ndarray
        "special": [],  # __add__ and the like, of ndarray
    }
    for space in SPACES:
        module, peer = _resolve(cupy, space), _resolve(numpy, space)
        for name in _public(module):
            thing, full = getattr(module, name), f"{space}.{name}".lstrip(".")
            if isinstance(thing, cupy.ufunc):
                at_works = thing._scatter_op is not None
                api["ufuncs"][full] = [thing.nin, thing.nout, at_works]
            elif _same(thing, getattr(peer, name, ...)):
                api["numpy"].append(full)
            elif not callable(thing) or inspect.isclass(thing):
                api["others"].append(full)
            else:
                api["functions"][full] = _parameters(thing)
                if "synchroni" in (thing.__doc__ or ""):
                    api["synchronizing"].append(full)
    for name in dir(cupy.ndarray):
        thing = getattr(cupy.ndarray, name)
        if name.startswith("__"):
            api["special"].append(name)
        elif not name.startswith("_"):
            if callable(thing):
                api["methods"][name] = _parameters(thing)
                if "synchroni" in (thing.__doc__ or ""):
                    api["synchronizing"].append(f"ndarray.{name}")
            else:
                api["attributes"].append(name)
    return api


def _resolve(module, dotted):
    for part in filter(None, dotted.split(".")):
        module = getattr(module, part)
    return module


def _public(module):
    skipped = {"annotations", "np"}  # imported by a CuPy module for its own use
    return [n for n in dir(module) if not n.startswith("_") and n not in skipped]


def _same(thing, other):
    """Return True if NumPy has the same object, or an equal number, under this name."""
    number = isinstance(thing, float) and isinstance(other, float)
    return thing is other or (number and (thing == other or thing != thing))


def _parameters(function):
    """Return the parameter list of `function` as source, from its signature or its docstring."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in Cython
        return _parameters_from_docstring(function.__doc__)
    if str(inspect.signature(function)) == "(*operands, **kwargs)":  # einsum
        return _parameters_from_docstring(function.__doc__)
    parameters = [p for p in parameters if p.name != "self"]
    bare = [p.replace(annotation=p.empty, default=_literal(p.default)) for p in parameters]
    return str(inspect.Signature(bare))[1:-1].replace("Ellipsis", "...")


def _parameters_from_docstring(doc):
    """Read `name(self, int axis=-1) -> type` on the first line; Cython writes it there."""
    source = re.match(r"[\w.]+\((.*?)\)( ->|$)", doc.splitlines()[0])[1]
    words = [item.split(" ")[-1] for item in source.split(", ")]  # drop the C types
    return ", ".join(w for w in words if w and w != "self")


def _literal(default):
    try:
        ast.literal_eval(repr(default))
    except (SyntaxError, ValueError):
        return default if default is inspect.Parameter.empty else ...
    return default


if __name__ == "__main__":
    API_FILE.write_text(json.dumps(read_api(), indent=0) + "\n")
    print(f"wrote {API_FILE}")
