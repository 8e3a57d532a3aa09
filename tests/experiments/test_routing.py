"""routing: EM in its own network, and a figure of the other routings."""

import json
from pathlib import Path

import numpy as np
import pytest

from minicaps.experiments import __main__ as command
from minicaps.experiments import routing
from minicaps.train.options import complete


def test_em_is_another_network_with_fewer_pictures():
    parts = {name: complete(own).to_dict() for name, own in routing.parts(quick=False).items()}
    em = {name: own for name, own in parts.items() if name.startswith(routing.EM)}
    assert [own["iterations"] for own in em.values()] == [1, 2, 3]
    assert {(own["model"], own["limit"]) for own in em.values()} == {("matrix-capsnet", 3500)}
    others = [own for name, own in parts.items() if name not in em]
    assert {(own["model"], own["limit"]) for own in others} == {("capsnet", None)}


@pytest.mark.slow
def test_em_is_measured_and_drawn(monkeypatch, capsys):
    monkeypatch.setattr(routing, "ROUTINGS", dict(list(routing.ROUTINGS.items())[:1]))
    short = {"validation": 10, "epochs": 1, "batch_size": 16}
    whole = routing.parts(quick=True)
    wanted = ("accumulate-3", "matrix-em-2")
    wanted = {part: whole[part] | short for part in wanted}
    wanted["matrix-em-1"] = wanted["matrix-em-2"] | {"iterations": 1}
    monkeypatch.setattr(routing, "parts", lambda quick: wanted)
    assert command.main(["routing", "--quick", "--device", "cpu"]) == 0
    folder = Path("runs/experiments/routing-quick")
    table = json.loads((folder / "routing.json").read_text())["table"]
    assert [row[0] for row in table[1:]] == list(wanted)
    figures = json.loads((folder / "routing/seed-0.json").read_text())
    entropy = [figures[f"matrix-em-{r}"]["figures"]["entropy"] for r in (1, 2)]
    assert entropy[0] == pytest.approx(1)  # couplings of one iteration are equal
    assert 0 <= entropy[1] < 1
    assert (folder / "routing.png").stat().st_size > 10_000


def test_errors_are_drawn_where_they_were_measured():
    from minicaps.plotting.canvas import new_figure

    axes = new_figure(3, 3).subplots()
    results = {"one-iteration": [{"accuracy": 0.9}], "leaky-3": [{"accuracy": a} for a in (0.8, 1)]}
    routing._draw_errors(axes, results, ["one-iteration", "leaky-2", "leaky-3"], {"label": "leaky"})
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1, 10], [3, 10]])
