"""Public names have type hints, and the stub of Tensor matches the class."""

import ast
import inspect
from pathlib import Path

import pytest

from lessons.machinery.web.reference import public_names
from minicaps import Tensor
from minicaps import tensor as tensor_module

PACKAGES = ("ops", "nn", "routing", "clustering", "models", "data", "runs", "train", "evaluate")
PACKAGES += ("plotting",)
MODULES = ("minicaps.optim", "minicaps.gradcheck", "minicaps.backend")


def exported(name):
    """Yield the functions and methods that a module exports, and whether each belongs to an op."""
    for value in public_names(name).values():
        if inspect.isclass(value):
            for key, method in vars(value).items():
                if inspect.isfunction(method) and (key == "__init__" or not key.startswith("_")):
                    yield method, False
        elif inspect.isfunction(value):
            yield inspect.unwrap(value), hasattr(value, "raw")


@pytest.mark.parametrize("name", [*(f"minicaps.{name}" for name in PACKAGES), *MODULES])
def test_public_functions_have_type_hints(name):
    """For an op, this means the static arguments: operands are tensors outside, arrays inside."""
    for function, is_op in exported(name):
        if not function.__module__.startswith("minicaps"):
            continue
        for p in inspect.signature(function).parameters.values():
            operand = is_op and p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
            typed = p.annotation is not p.empty or p.name == "self" or operand
            assert typed, f"{function.__module__}.{function.__qualname__}: {p.name}"
        if not is_op and function.__name__ != "__init__":
            returns = inspect.signature(function).return_annotation
            assert returns is not inspect.Signature.empty, function.__qualname__


def test_the_stub_of_tensor_is_true():
    """Both have the same members with the same arguments and defaults."""
    text = Path(tensor_module.__file__).with_suffix(".pyi").read_text()
    body = next(n for n in ast.parse(text).body if getattr(n, "name", "") == "Tensor").body
    stub = {n.name: n for n in body if isinstance(n, ast.FunctionDef)}
    hidden = {"__weakref__", "__slots__", "__module__", "__doc__", "__repr__", "__array_ufunc__"}
    here = {k for k in vars(Tensor) if not (k.startswith("_") and not k.startswith("__"))}
    assert here - hidden - {"grad", "node"} == stub.keys()
    for name, declared in stub.items():
        function = vars(Tensor)[name]
        if isinstance(function, property) or name.startswith("__") or hasattr(function, "raw"):
            continue
        arguments = declared.args.args[1:]
        own = list(inspect.signature(function).parameters.values())[1:]
        own = [p for p in own if p.kind is not p.VAR_POSITIONAL]
        assert [a.arg for a in arguments] == [p.name for p in own], name
        assert [ast.literal_eval(d) for d in declared.args.defaults] == [
            p.default for p in own if p.default is not p.empty
        ], name
