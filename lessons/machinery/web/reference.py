"""Write the reference of a package's public names as Markdown, from signatures and docstrings.

A page of `lessons/reference` has text and an example; its line `<!-- reference: MODULE … -->` is
replaced by an entry for each name that the modules export.
"""

import importlib
import inspect
import re

MARK = re.compile(r"^<!-- reference: (.+) -->$", re.MULTILINE)
SECTION = re.compile(
    r"^(Parameters|Attributes|Returns|Raises|Yields|Notes|Examples)\n-+\n", re.MULTILINE
)


def expand(text):
    """A page with its mark replaced by the entries of the modules that the mark names."""
    return MARK.sub(lambda found: "\n".join(map(entries, found[1].split())), text)


def entries(module):
    """The entries of all names that a module exports."""
    names = sorted(public_names(module).items(), key=lambda item: item[0].lower())
    return "\n".join(filter(None, (entry(module, name, value) for name, value in names)))


def public_names(module):
    """{name: value} of what a module exports: its `__all__`, or what it defines."""
    here = importlib.import_module(module)
    if exported := getattr(here, "__all__", None):
        return {name: getattr(here, name) for name in exported}
    return {
        name: value
        for name, value in vars(here).items()
        if getattr(value, "__module__", None) == module and not name.startswith("_")
    }


def entry(module, name, value):
    """The entry of a name: heading, signature, docstring; of a class its methods too."""
    if inspect.ismodule(value):
        return None  # it has a page of its own
    if not callable(value):
        return f"## {name}\n\n`{module}.{name}` = `{_short(value)}`\n"
    # On a wide screen the signature stands beside the docstring before it
    lines = [f"## {name}\n", prose(inspect.getdoc(value)), _signature(f"{module}.{name}", value)]
    if inspect.isclass(value):
        for key, method in vars(value).items():
            if inspect.isfunction(method) and method.__doc__ and not key.startswith("_"):
                lines += [f"### {name}.{key}\n", prose(method.__doc__), _signature(key, method)]
    return "\n".join(lines)


def _signature(name, value):
    try:
        text = f"{name}{inspect.signature(value)}"
    except ValueError:  # a class of the standard library's
        text = name
    if hasattr(value, "raw"):
        text += " -> Tensor"
    text = re.sub(
        r"minicaps\.[\w.]*\.(?=[A-Z])|numpy\.random\._generator\.|collections\.abc\.|pathlib\.",
        "",
        text,
    )
    text = text.replace("typing.Any", "Any")
    if len(text) > 76:  # an argument on each line
        opening, _, rest = text.partition("(")
        inside, _, returns = rest.rpartition(")")
        arguments = re.split(r", (?![^\[(]*[\])])", inside)
        text = "\n".join([f"{opening}(", *(f"    {a}," for a in arguments), f"){returns}"])
    return f"```python\n{text}\n```\n"


def prose(docstring):
    """A docstring as Markdown: sections in bold, their terms as a list, the rest as it is."""
    text = inspect.cleandoc(docstring or "")
    first, *sections = SECTION.split(text)
    made = [first.strip()]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        made.append(f"**{title}**")
        terms = re.split(r"^(?=\S)", body.strip("\n"), flags=re.MULTILINE)
        made.append("\n".join(map(_term, filter(str.strip, terms))))
    return "\n\n".join(made) + "\n"


def _term(text):
    """`name : type` and its indented description as an item of a list."""
    head, _, body = text.strip().partition("\n")
    name, _, kind = head.partition(" : ")
    body = " ".join(inspect.cleandoc(body).split())
    if not kind and not body and " " in name:  # a sentence
        return name
    return f"- `{name}`{f' ({kind})' if kind else ''}{': ' if body else ''}{body}"


def _short(value):
    text = ", ".join(value) if isinstance(value, dict | tuple) else repr(value)
    return text if len(text) < 200 else text[:200] + "…"
