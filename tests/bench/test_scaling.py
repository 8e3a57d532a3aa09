"""`minicaps.bench --what scaling`: what is measured on ranks, modeled, printed and drawn."""

import json

import numpy as np
import pytest
from mpi import needs_mpi, run
from PIL import Image

from minicaps.bench import __main__ as bench
from minicaps.bench import cost, on_ranks, scaling
from minicaps.bench.scaling_tables import speed_up
from minicaps.errors import ProcessError

LINK = cost.Link(2e-5, 1e-9, scaling.NETWORKS["10 Gbit/s"][1] / 4)


def step_of(images):
    """Times of a step that takes 2 ms and 1 ms per image, 60% of it for the backward pass."""
    taken = 0.002 + 0.001 * images
    return {"step": taken, "sum": 0, "forward": 0, "backward": 0.6 * taken, "update": 0}


def made_run(count, order):
    """What `run_ranks` returns, on a machine with a known link on which sums take a tree."""
    kinds = {"strong": 1, "weak": count} if count > 1 else {"both": 1}
    steps = [
        {"preset": preset, "kind": kind, "images": times * order["batch"], "step": 0.1, "sum": 0.01}
        for preset in order["presets"]
        for kind, times in kinds.items()
    ]
    sums = [[size, cost.tree(count, size).seconds(LINK)] for size in order["sizes"]]
    return {"ranks": count, "steps": steps, "sums": sums if count > 1 else []}


@pytest.fixture
def made(monkeypatch):
    """Four cores whose times are made up."""
    monkeypatch.setattr(scaling, "cannot_measure", lambda: None)
    monkeypatch.setattr(scaling, "cores", lambda: 4)
    monkeypatch.setattr(scaling, "run_ranks", made_run)
    monkeypatch.setattr(scaling, "timed_step", lambda preset, images, repeats: step_of(images))
    monkeypatch.setattr(scaling, "added_byte", lambda size, repeats: LINK.per_added)


def test_measurements_and_model_are_printed_written_and_drawn(made, tmp_path, capsys):
    file, picture = tmp_path / "scaling.json", tmp_path / "scaling.png"
    options = ["--what", "scaling", "--batch", "64", "--json", str(file), "--figure", str(picture)]
    assert bench.main(options) == 0
    (found,), printed = json.loads(file.read_text())["scaling"], capsys.readouterr().out
    assert [run["ranks"] for run in found["measured"]] == [1, 2, 4]
    lines = [line.split() for line in printed.splitlines()]
    assert ["paper,", "strong", "4", "64", "100.0", "10.0", "640.0", "1.00", "25%"] in lines
    assert ["small,", "weak", "4", "256", "100.0", "10.0", "2,560.0", "4.00", "100%"] in lines
    assert found["fits"][0]["sum"] == "tree"  # in this way the sums were made
    assert found["fits"][0]["latency"] == pytest.approx(LINK.latency)
    assert found["fits"][0]["error"] < 1e-6 < found["fits"][1]["error"]
    assert [model["preset"] for model in found["models"]] == ["paper", "small"]
    for model in found["models"]:
        assert [row["ranks"] for row in model["rows"][:11]] == [2**k for k in range(11)]
        assert model["step"]["images"] == [1, 2, 4, 8, 16, 32, 64]
    assert "10 Gbit/s between machines: 50.0 µs per message, 0.80 ns per byte" in printed
    assert max(map(len, printed.splitlines())) <= 100
    assert Image.open(picture).format == "PNG"


def test_the_model_follows_from_the_step_and_the_network(made):
    found = scaling.model("small", 64, 1, LINK.per_added)
    at_64 = [row for row in found["rows"] if row["ranks"] == 64]
    for row, (latency, per_byte) in zip(at_64, scaling.NETWORKS.values(), strict=True):
        work = cost.SUMS[row["sum"]](64, found["bytes"])
        assert row["seconds"] == work.seconds(cost.Link(latency, per_byte, LINK.per_added))
        assert row["strong"] == pytest.approx(0.003 + row["seconds"])
        assert row["weak"] == pytest.approx(0.066 + row["seconds"])
        assert 0.066 < row["weak_hidden"] < row["weak"]
    alone = found["rows"][0]
    assert alone["strong"] == alone["weak_hidden"] == pytest.approx(0.066)


def test_times_of_a_busy_machine_are_neither_modeled_nor_drawn(made, monkeypatch, tmp_path, capsys):
    def slow_alone(preset, images, repeats):
        return step_of(20 if preset == "small" and images == 1 else images)

    monkeypatch.setattr(scaling, "timed_step", slow_alone)
    options = ["--what", "scaling", "--batch", "64", "--figure", str(tmp_path / "scaling.png")]
    assert bench.main(options) == 0
    out = capsys.readouterr().out
    assert out.count("1 image took longer than 2: the machine was busy; measure again.") == 1
    assert out.count("\n 1,024 ") == 1  # a row for the other network, which the figure shows
    assert (tmp_path / "scaling.png").exists()
    (tmp_path / "scaling.png").unlink()
    assert bench.main([*options, "--preset", "small"]) == 0
    out, err = capsys.readouterr()
    assert "\n 1,024 " not in out and err.count("no figure") == 1
    assert not (tmp_path / "scaling.png").exists()


def test_a_fit_that_is_far_off_is_not_printed(made, monkeypatch, capsys):
    def noisy(count, order):
        run = made_run(count, order)
        run["sums"] = [
            [n, taken * (20 if k % 2 else 1)] for k, (n, taken) in enumerate(run["sums"])
        ]
        return run

    monkeypatch.setattr(scaling, "run_ranks", noisy)
    assert bench.main(["--what", "scaling", "--preset", "small"]) == 0
    out = capsys.readouterr().out
    assert out.count("measure again") == 1 and "fitted to the sums" not in out


def test_the_assumptions_say_that_some_ranks_have_no_image(made, capsys):
    for batch, said in ((64, 1), (1024, 0)):
        assert bench.main(["--what", "scaling", "--preset", "small", "--batch", str(batch)]) == 0
        assert capsys.readouterr().out.count("without an image") == said


def test_speed_up_counts_images_per_second():
    alone, four = {"images": 10, "step": 1.0}, {"images": 40, "step": 2.0}
    assert speed_up(four, alone) == 2


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6])])
def test_the_numbers_of_ranks_double(most, counts):
    assert scaling.doubling(most) == counts


def test_without_mpi_it_says_what_to_install_and_models(monkeypatch, capsys):
    monkeypatch.setattr(scaling, "launcher", lambda: None)
    monkeypatch.setattr(scaling, "run_ranks", lambda *_: pytest.fail("ranks were started"))
    options = ["--what", "scaling", "--preset", "small", "--batch", "1", "--repeats", "1"]
    assert bench.main(options) == 0
    out, err = capsys.readouterr()
    assert err.count("\n") == 1 and 'pip install -e ".[mpi]"' in err
    assert "efficiency: 100%" not in out and "1,024 " in out


@needs_mpi
def test_two_ranks_are_measured():
    order = {"presets": ["small"], "batch": 3, "sizes": [1024, 4096], "repeats": 1}
    found = scaling.run_ranks(2, order)
    assert found["ranks"] == 2
    assert [(s["kind"], s["images"]) for s in found["steps"]] == [("strong", 3), ("weak", 6)]
    assert all(0 < s["sum"] < s["step"] for s in found["steps"])
    assert [size for size, _ in found["sums"]] == [1024, 4096]
    assert all(taken > 0 for _, taken in found["sums"])


SCRIPT = """
import sys
import numpy as np
from minicaps import ranks
from minicaps.bench.on_ranks import SharedStep
step = SharedStep("small", 3)
step()
if ranks.is_root():
    np.save(sys.argv[1], np.concatenate([p.grad.ravel() for p in step.together.parameters]))
"""


@needs_mpi
def test_two_ranks_compute_the_gradient_of_one(tmp_path):
    run(2, "-c", SCRIPT, tmp_path / "g.npy")
    step = on_ranks.SharedStep("small", 3)
    step()
    alone = np.concatenate([p.grad.ravel() for p in step.together.parameters])
    np.testing.assert_allclose(np.load(tmp_path / "g.npy"), alone, atol=1e-6 * abs(alone).max())


@needs_mpi
def test_ranks_that_fail_say_why():
    order = {"presets": ["huge"], "batch": 2, "sizes": [], "repeats": 1}
    with pytest.raises(ProcessError, match="unknown preset 'huge'"):
        scaling.run_ranks(1, order)


def test_a_step_on_one_rank_trains():
    step = on_ranks.SharedStep("small", 2)
    before = step.together.parameters[0].numpy().copy()
    parts = step()
    assert len(parts) == 4 and min(parts) > 0
    assert (step.together.parameters[0].numpy() != before).any()
