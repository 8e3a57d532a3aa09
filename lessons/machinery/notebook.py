"""Writes a lesson as a Jupyter notebook with its outputs."""

import base64
import json
import re
from pathlib import Path

from lessons.machinery.execute import run_page
from lessons.machinery.page import IMAGE, LESSONS, SUMMARY, read_blocks


def make_notebook(path):
    """The notebook of a page, executed, as JSON text (nbformat 4.5).

    Jupyter folds whole cells only. So the words of a solution stay in a <details> of their cell,
    and its code is in a cell whose source and outputs are hidden.
    """
    page = Path(path).read_text("utf-8").splitlines()
    outcomes = {block.line: outcome for block, outcome in run_page(path)}
    cells, position, open_summary = [], 0, None
    for block in read_blocks(path):
        if block.quote is None:
            words, open_summary = _words(page[position : block.line - 2], open_summary)
            cells += [*words, _code(block, outcomes[block.line])]
            position = block.end
            _take_outputs(page, block)
    words, _ = _words(page[position:], open_summary)
    cells += words
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _take_outputs(page, block):
    """Blank what the block printed in the lines of the page; leave the words of its pictures.

    The words are a caption, because an output has no alt text once the reader runs its cell.
    """
    if block.output:
        for line in range(block.output.line - 1, block.output.end + 1):
            page[line - 1] = ""
    for line, _ in block.images:
        page[line - 1] = f"*Figure:* {IMAGE.match(page[line - 1])['alt']}"


def _words(lines, summary):
    """Markdown cells for lines of prose, and the summary of the <details> left open at their end.

    A <details> that a code cell interrupts is closed before that cell and opened again after it.
    """
    text = "" if summary is None else f"<details>\n<summary>{summary}, continued</summary>\n\n"
    for line in lines:
        if found := SUMMARY.match(line):
            summary = found[1]
        elif line.startswith("</details>"):
            summary = None
        text += line + "\n"
    text += "" if summary is None else "\n</details>\n"
    text = re.sub(r"<details>\n<summary>.*</summary>\s*</details>\n", "", text)  # left empty
    text = re.sub(r"^```python source=.*$", "```python", text, flags=re.MULTILINE)
    text = re.sub(r"^> \[!\w+\]\n", "", text, flags=re.MULTILINE)  # GitHub's own syntax
    # A notebook lies beside the folder of the pages
    text = re.sub(r"\]\((?=\w+\.md)", f"]({LESSONS.name}/", text)
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    cell = {"cell_type": "markdown", "metadata": {}, "source": text}
    return ([cell] if text else []), summary


def _code(block, outcome):
    outputs = []
    if outcome.lines:
        text = "\n".join(outcome.lines) + "\n"
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    for picture in outcome.figures:
        data = {"image/png": base64.b64encode(picture.png).decode(), "text/plain": "<Figure>"}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    hidden = {"jupyter": {"source_hidden": True, "outputs_hidden": True}, "cellView": "form"}
    return {
        "cell_type": "code",
        "metadata": hidden if block.solution else {},
        "execution_count": None,
        "source": "\n".join(block.lines),
        "outputs": outputs,
    }
