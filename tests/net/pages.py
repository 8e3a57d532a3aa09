"""Show that a language edit left the code, formulas and numbers of the pages unchanged.

    python tests/net/pages.py OLD [PAGE ...]

Compare the lessons and appendices in this checkout with those of the commit OLD and print every
difference. Fenced blocks and display formulas must be equal and in the same order; inline code,
inline formulas, link targets and numbers in prose must occur equally often. A quoted function may
differ in its docstring and comments. The exit status is 1 if anything differs.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def parts_of(text):
    """Return the parts of a page that a language edit must not change, by kind."""
    fences = re.findall(r"^```(.*?)\n(.*?)^```$", text, flags=re.M | re.S)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    display = re.findall(r"^\$\$\n(.*?)\n\$\$$", text, flags=re.M | re.S)
    text = re.sub(r"^\$\$\n.*?\n\$\$$", "", text, flags=re.M | re.S)
    code, text = re.findall(r"`([^`]+)`", text), re.sub(r"`[^`]+`", "", text)
    inline, text = re.findall(r"\$([^$\n]+)\$", text), re.sub(r"\$[^$\n]+\$", "", text)
    links, text = re.findall(r"\]\(([^)]+)\)", text), re.sub(r"\]\([^)]+\)", "]", text)
    numbers = re.findall(r"\d+(?:[.,]\d+)*", text)
    return {
        "fences": [(head, _code(head, body)) for head, body in fences],
        "display formulas": display,
        "inline code": Counter(code),
        "inline formulas": Counter(inline),
        "links": Counter(links),
        "numbers": Counter(numbers),
    }


def _code(head, body):
    """Return the text of a block or, for a quote, its syntax tree without docstrings."""
    if "source=" not in head:
        return body
    tree = ast.parse(body)
    for node in ast.walk(tree):
        block = getattr(node, "body", None)
        if isinstance(block, list) and block and isinstance(block[0], ast.Expr):
            value = block[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                value.value = ""
    return ast.dump(tree)


def differences(old, new):
    """Yield descriptions of the differences between the parts of two pages."""
    for kind, before in old.items():
        now = new[kind]
        if isinstance(before, Counter):
            gone, added = before - now, now - before
            if gone or added:
                yield f"{kind}: gone {dict(gone)}, new {dict(added)}"
        elif len(before) != len(now):
            yield f"{kind}: {len(before)} before, {len(now)} now"
        else:
            for k, (one, other) in enumerate(zip(before, now, strict=True), 1):
                if one != other:
                    yield f"{kind}: number {k} differs\n- {one}\n+ {other}"


def main(old, *names):
    paths = sorted((ROOT / "lessons").glob("[0-9A]*_*.md"))
    paths = [path for path in paths if not names or path.name in names]
    found = 0
    for path in paths:
        command = ["git", "show", f"{old}:lessons/{path.name}"]
        before = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for line in differences(parts_of(before.stdout), parts_of(path.read_text("utf-8"))):
            found += 1
            print(f"{path.name}: {line}")
    print(f"{len(paths)} pages compared with {old}, {found} differences")
    return found > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
