"""Convert a lesson to a Jupyter notebook with its outputs."""

import base64
import json
import re
from pathlib import Path

from lessons.machinery.execute import run_page
from lessons.machinery.page import IMAGE, LESSONS, SUMMARY, read_blocks


def make_notebook(path):
    """Return the executed notebook of a page as JSON text (nbformat 4.5).

    Jupyter can fold only whole cells. The prose of a solution therefore stays in a <details> of its
    cell, and the code goes into a cell whose source and outputs are hidden.
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
    """Blank the printed text of a block in the page; keep the alt texts of its figures.

    They become captions, because an output has no alt text once the reader runs its cell.
    """
    if block.output:
        for line in range(block.output.line - 1, block.output.end + 1):
            page[line - 1] = ""
    for line, _ in block.images:
        page[line - 1] = f"*Figure:* {IMAGE.match(page[line - 1])['alt']}"


def _words(lines, summary):
    """Return Markdown cells for lines of prose, and the summary of a <details> open at their end.

    A <details> interrupted by a code cell is closed before that cell and reopened after it.
    """
    text = "" if summary is None else f"<details>\n<summary>{summary}, continued</summary>\n\n"
    for line in lines:
        if found := SUMMARY.match(line):
            summary = found[1]
        elif line.startswith("</details>"):
            summary = None
        text += line + "\n"
    text += "" if summary is None else "\n</details>\n"
    text = re.sub(r"<details>\n<summary>.*</summary>\s*</details>\n", "", text)  # now empty
    text = re.sub(r"^```python source=.*$", "```python", text, flags=re.MULTILINE)
    text = re.sub(r"^> \[!\w+\]\n", "", text, flags=re.MULTILINE)  # syntax specific to GitHub
    # A notebook is written next to the folder of the pages
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
