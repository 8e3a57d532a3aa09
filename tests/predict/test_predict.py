"""Tests of `python -m minicaps.predict`: all kinds of images, doubts, figures and faults."""

import io
import itertools
import json
import os
import re
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
from own_files import saved
from PIL import Image
from thinning import thinned, thinned_rows
from tiny_runs import edit, fill, ordinary_user, run, send_in_call

from minicaps import data, plot, plotting
from minicaps.backend import choose_device
from minicaps.models import inspection
from minicaps.predict import __main__ as predict
from minicaps.runs.run import open_run

MANUAL = Path(predict.__file__).parents[1] / "train/README.md"


@pytest.fixture
def trained():
    return run()


def ask(capsys, *arguments, code=0):
    """Run the command without figures; return its JSON objects and the text on standard error."""
    line = [*map(str, arguments), "--device", "cpu", "--json"]
    assert predict.main([*line, "--no-figures"]) == code
    said = capsys.readouterr()
    return objects(said.out), said.err


def objects(out):
    """Return the JSON objects among the lines; other lines are from earlier training."""
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def strokes(index=0):
    return data.load("strokes", limit=40).test.images[index]


def answering(monkeypatch, *scores):
    """Make every network give these scores to the first classes, and 0 to all others."""

    def given(model, pictures):
        padded = np.zeros((len(pictures), 10), np.float32)
        padded[:, : len(scores)] = scores
        return padded

    monkeypatch.setattr(inspection, "scores", given)


def shown(monkeypatch):
    """Collect the images that networks are shown."""
    collected, scores = [], inspection.scores

    def watched(model, pictures):
        collected.extend(pictures)
        return scores(model, pictures)

    monkeypatch.setattr(inspection, "scores", watched)
    return collected


# ---- predictions


def test_the_scores_are_the_network_s(trained, capsys):
    picture = np.rint(strokes() * 255).astype(np.float32) / 255  # rounded as in a PNG
    (result,), err = ask(capsys, trained, saved("a.png", picture))
    view = inspection.view(open_run(trained, choose_device("cpu")).model, picture)
    assert list(result["scores"]) == [str(k) for k in np.argsort(-view.scores)]  # highest first
    for name, score in result["scores"].items():
        assert score == pytest.approx(view.scores[int(name)], abs=1e-6)
    assert result["answer"] == str(view.scores.argmax())
    assert result["score"] == "length" and not err


def test_the_report_has_all_classes_with_bars(trained, capsys, monkeypatch):
    answering(monkeypatch, 0.1, 0.9, 0.25)
    saved("a.png", strokes())
    assert predict.main([str(trained), "a.png", "--no-figures"]) == 0
    *_, first, done = (lines := capsys.readouterr().out.splitlines())[:-10]
    table = lines[-10:]
    assert first == "a.png: 1"
    assert done == "  28×28 pixels, grayscale"
    assert table[:3] == ["  1  0.900  " + 36 * "#", "  2  0.250  " + 10 * "#", "  0  0.100  ####"]


@pytest.mark.parametrize(
    ("scores", "doubt"),
    thinned_rows(
        [
            ((0.51, 0.49), None),
            ((0.5, 0.5), "none of the classes is seen (no length is above 0.5)"),
            ((0.6, 0.9), "several classes are seen (length above 0.5): 1, 0"),
            ((0.9,) * 5, "several classes are seen (length above 0.5): 0, 1, 2 and 2 more"),
        ],
        2,
    ),
)
def test_doubts(trained, capsys, monkeypatch, scores, doubt):
    answering(monkeypatch, *scores)
    (result,), _ = ask(capsys, trained, saved("a.png", strokes()))
    assert result["doubt"] == doubt
    assert predict.main([str(trained), "a.png", "--no-figures"]) == 0
    assert ("unsure" in capsys.readouterr().out) == (doubt is not None)


@pytest.mark.slow
def test_a_network_that_learned_several_classes_may_see_several(capsys, monkeypatch):
    trained = run("--compose", "2")
    answering(monkeypatch, 0.6, 0.9)
    results, _ = ask(capsys, trained, saved("a.png", strokes()))
    assert results[0]["doubt"] is None and results[0]["seen"] == ["1", "0"]
    assert not results[0]["centred"]
    assert predict.main([str(trained), "a.png", "--no-figures"]) == 0
    assert "a.png: 1, 0\n" in capsys.readouterr().out
    answering(monkeypatch, 0.4)
    (result,), _ = ask(capsys, trained, "a.png")
    assert result["seen"] == [] and result["doubt"] is None  # an image may have no class
    assert predict.main([str(trained), "a.png", "--no-figures"]) == 0
    assert "a.png: no class (no length is above 0.5)\n" in capsys.readouterr().out


def test_what_the_cross_entropy_trained_is_read_as_shares(capsys, monkeypatch):
    trained = run("--loss", "cross-entropy")
    answering(monkeypatch, 0.2, 0.1)  # P = 2/3 and 1/3
    (result,), _ = ask(capsys, trained, saved("a.png", strokes()))
    assert result["doubt"] is None
    answering(monkeypatch, 0.9, 0.9)
    (result,), _ = ask(capsys, trained, "a.png")
    assert result["doubt"] == "none of the classes is seen (no share is above 0.5)"


@pytest.mark.parametrize(
    ("arguments", "score"),
    thinned_rows(
        [
            (("--model", "capsule-cnn"), "length"),
            (("--model", "pooling-cnn"), "probability"),
            (("--model", "baseline-cnn", "--size", "4"), "probability"),
            (("--model", "matrix-capsnet", "--iterations", "2"), "activation"),
            (("--routing", "leaky"), "length"),
            (("--routing", "learned", "--reconstruction", "0"), "length"),
            (("--precision", "float64"), "length"),
        ],
        [(("--routing", "leaky"), "length")],
    ),
)
def test_every_network_answers_and_is_drawn(arguments, score, capsys):
    trained = run(*arguments)
    saved("a.png", strokes())
    assert predict.main([str(trained), "a.png", "--json"]) == 0
    (result,) = objects(capsys.readouterr().out)
    assert result["score"] == score and len(result["scores"]) == 10
    with Image.open(result["figure"]) as figure:
        assert min(figure.size) > 300


@pytest.mark.slow
def test_devices_agree(trained, capsys, strict_cupy):
    saved("a.png", strokes())
    line = [str(trained), "a.png", "--no-figures", "--json", "--device"]
    results = []
    for device in ("cpu", "gpu"):
        assert predict.main([*line, device]) == 0
        results += [result["scores"] for result in objects(capsys.readouterr().out)]
    assert results[0] == pytest.approx(results[1], abs=1e-5)


# ---- folders and standard input


@pytest.mark.skipif(os.name != "posix", reason="requires links")
def test_a_folder_is_searched_with_its_subfolders(trained, capsys):
    for name in ("b.png", "a/y.png", "a/deep/z.png", "c/x.png", ".hidden/h.png"):
        saved(f"all/{name}", strokes())
    Path("all/c/loop").symlink_to(Path("all").absolute())
    Path("all/self").symlink_to("self")
    results, err = ask(capsys, trained, "all", code=1)
    names = [Path(r["file"]).relative_to("all").as_posix() for r in results]
    assert names == ["b.png", "self", "a/y.png", "a/deep/z.png", "c/x.png"]
    assert [r["file"] for r in results if "error" in r] == ["all/self"]
    assert err.startswith("minicaps.predict: cannot read all/self: ")


@pytest.mark.skipif(os.name != "posix", reason="requires POSIX permissions")
def test_a_folder_that_cannot_be_read_stops_no_other(capsys):
    picture = strokes()
    with tempfile.TemporaryDirectory() as place:  # not inside a folder that only root can enter
        os.chmod(place, 0o755)
        trained = run(out=f"{place}/run")
        for name in ("locked/a.png", "open/b.png"):
            saved(f"{place}/all/{name}", picture)
        os.chmod(f"{place}/all/locked", 0)
        with ordinary_user():
            results, err = ask(capsys, trained, f"{place}/all", code=1)
    assert [Path(r["file"]).name for r in results] == ["b.png"]
    assert f"cannot read the folder {place}/all/locked: Permission denied" in err


@pytest.mark.skipif(os.name != "posix", reason="requires a device")
def test_a_device_is_no_image(trained, capsys):
    os.mkfifo("pipe")
    results, _ = ask(capsys, trained, "pipe", "/dev/zero", code=1)
    assert [r["error"] for r in results] == [
        f"{name} is not a regular file: replace or remove it" for name in ("pipe", "/dev/zero")
    ]


def piped(monkeypatch, content):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_names_from_standard_input(trained, capsys, monkeypatch):
    for name in ("first.png", "all/a.png", "all/größe.png", "last.png"):
        saved(name, strokes())
    piped(monkeypatch, b"\nall\r\nmissing.png\n-\nlast.png")
    results, err = ask(capsys, trained, "first.png", "-", code=1)
    names = ["first.png", "all/a.png", "all/größe.png", "missing.png", "last.png"]
    assert [r["file"] for r in results] == names
    assert err == "minicaps.predict: cannot read missing.png: No such file or directory\n"


def test_an_image_from_standard_input(trained, capsys, monkeypatch):
    content = Path(saved("a.png", strokes())).read_bytes()
    (expected,), _ = ask(capsys, trained, "a.png")
    piped(monkeypatch, content)
    (result,), _ = ask(capsys, trained, "-")
    assert result == expected | {"file": "standard input"}
    piped(monkeypatch, content[:60])
    (result,), _ = ask(capsys, trained, "-", code=1)
    assert result["error"].startswith("standard input is damaged")


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_nothing_on_standard_input(trained, capsys, monkeypatch, content):
    piped(monkeypatch, content)
    results, err = ask(capsys, trained, "-", code=1)
    assert err == "minicaps.predict: standard input contains no image and no file names\n"
    assert not results


def test_standard_input_that_is_closed(trained, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert "cannot read standard input" in ask(capsys, trained, "-", code=1)[1]


# ---- what is printed


def test_a_batch_gives_what_single_images_give(trained, capsys, monkeypatch):
    monkeypatch.setattr(predict, "EVALUATION_BATCH", 4)
    names = [saved(f"all/{k}.png", strokes(k)) for k in range(6)]
    Path("all/2.png").write_text("hello")
    sizes = []
    scores = inspection.scores
    monkeypatch.setattr(
        inspection, "scores", lambda model, some: sizes.append(len(some)) or scores(model, some)
    )
    results, _ = ask(capsys, trained, "all", code=1)
    assert sizes == [3, 2] and [r["file"] for r in results] == names
    for name, result in zip(names, results, strict=True):
        (alone,), _ = ask(capsys, trained, name, code=name == "all/2.png")
        assert result.keys() == alone.keys()
        if "error" not in result:
            assert result["scores"] == pytest.approx(alone.pop("scores"), abs=1e-6)
        assert result | alone == result


def test_csv(trained, capsys, monkeypatch):
    answering(monkeypatch, 0.1, 0.9, 0.75)
    saved("a,b.png", strokes())
    line = [str(trained), "a,b.png", "none.png", "--no-figures", "--format", "csv"]
    for more, scores in (([], "0.1,0.9,0.75" + 7 * ",0"), (["--top", "2"], ",0.9,0.75" + 7 * ",")):
        assert predict.main([*line, *more]) == 1
        assert capsys.readouterr().out.splitlines()[-3:] == [
            "file,answer,seen,doubt,error,0,1,2,3,4,5,6,7,8,9",
            f'"a,b.png",1,1 + 2,"several classes are seen (length above 0.5): 1, 2",,{scores}',
            "none.png,,,,cannot read none.png: No such file or directory" + 10 * ",",
        ]


def test_the_manual_explains_every_column_and_key(trained, capsys, monkeypatch):
    _, table = MANUAL.read_text("utf-8").split("| column or key | in | value |\n")
    lines = table.split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    where = {name: row[1] for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    Image.fromarray(np.uint8(255 * strokes()[0])).save("a.png")
    found, _ = ask(capsys, trained, "a.png", "missing.png", code=1)
    assert found[0].keys() | found[1].keys() == where.keys()
    assert found[0]["score"] in MANUAL.read_text("utf-8")
    predict.main([str(trained), "a.png", "--format", "csv", "--no-figures", "--device", "cpu"])
    header = capsys.readouterr().out.splitlines()[0].split(",")
    assert header == [*(name for name in where if "CSV" in where[name]), *"0123456789"]


def test_no_text_in_a_csv_table_is_a_formula(trained, capsys, monkeypatch):
    names = ["=1+1", "-1", *map(str, range(2, 10))]
    edit(trained / "best.npz", lambda meta: meta["preprocessing"].update(class_names=names))
    answering(monkeypatch, 0.9)
    saved("@a.png", strokes())
    assert predict.main([str(trained), "@a.png", "--no-figures", "--format", "csv"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.startswith("file,answer,seen,doubt,error,'=1+1,-1,2,")
    assert row.startswith("'@a.png,'=1+1,'=1+1,,,0.9,0,")


def test_only_the_best_classes_are_printed(trained, capsys, monkeypatch):
    answering(monkeypatch, 0.1, 0.9, 0.25)
    saved("a.png", strokes())
    line = [str(trained), "a.png", "--no-figures"]
    assert predict.main([*line, "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()[-3:]
    assert [line.split()[0] for line in lines] == ["28×28", "1", "2"]
    (result,), _ = ask(capsys, trained, "a.png", "--top", "2")
    assert list(result["scores"]) == ["1", "2"]
    monkeypatch.setattr("minicaps.predict.printing.ALL", 9)  # ten classes are now many
    assert predict.main(line) == 0
    *best, last = capsys.readouterr().out.splitlines()[-6:]
    assert [line.split()[0] for line in best] == ["1", "2", "0", "3", "4"]
    assert last == "  and 5 classes with lower scores (--top 10 prints all)"


def test_figures_of_many_images_are_drawn_only_on_request(trained, capsys, monkeypatch):
    drawn = []
    monkeypatch.setattr(plotting, "prediction", lambda path, *_, **__: drawn.append(path))
    for k in range(21):
        saved(f"all/{k}.png", strokes())
    for more, count in (([], 0), (["--figures"], 21), (["--out", "here"], 21), (["all/1.png"], 0)):
        drawn.clear()
        assert predict.main([str(trained), "all", *more, "--json"]) == 0
        said = capsys.readouterr()
        assert len(drawn) == count
        told = "" if count else f"figures of {21 + len(more)} images are skipped; give --figures to"
        assert told in said.err and bool(said.err) == bool(told)
    os.remove("all/0.png")
    assert predict.main([str(trained), "all"]) == 0
    assert len(drawn) == 20 and not capsys.readouterr().err


# ---- how images are read


def test_any_size_and_tone_becomes_what_the_network_knows(trained, capsys, monkeypatch):
    pictures = shown(monkeypatch)
    small = np.rint(strokes() * 255).astype(np.float32) / 255
    large = small.repeat(5, axis=1).repeat(5, axis=2)
    kinds = {
        "light.png": small,
        "dark.png": 1 - small,
        "colour.png": np.repeat(1 - small, 3, axis=0),
        "large.png": 1 - large,  # loses sharpness when reduced
    }
    for name, picture in kinds.items():
        saved(name, picture)
    results, _ = ask(capsys, trained, *kinds, "--centre", "no")
    assert [r["inverted"] for r in results] == [False, True, True, True]
    for picture, most in zip(pictures, (0.001, 0.001, 0.001, 0.25), strict=True):
        assert picture.shape == (1, 28, 28) and picture.dtype == np.float32
        np.testing.assert_allclose(picture, small, atol=most)


def test_invert_as_told(trained, capsys, monkeypatch):
    pictures = shown(monkeypatch)
    saved("dark.png", 1 - strokes())
    (no,), _ = ask(capsys, trained, "dark.png", "--invert", "no")
    (yes,), _ = ask(capsys, trained, "dark.png", "--invert", "yes")
    assert (no["inverted"], yes["inverted"]) == (False, True)
    np.testing.assert_allclose(pictures[0], 1 - pictures[1], atol=1e-6)


@pytest.mark.parametrize(
    ("background", "inverted"),
    thinned_rows([("dark", True), ("light", False), ("mixed", False), (None, False)]),
)
def test_inverted_if_the_training_pictures_were_not_so(trained, capsys, background, inverted):
    edit(trained / "best.npz", lambda meta: meta["preprocessing"].update(background=background))
    (result,), err = ask(capsys, trained, saved("dark.png", 1 - strokes()))
    assert result["inverted"] == inverted
    assert ("does not record whether it was trained on light" in err) == (background is None)


@pytest.mark.slow
def test_ink_is_centred_where_the_network_knows_it_so(trained, capsys, monkeypatch):
    pictures = shown(monkeypatch)
    canvas = np.ones((1, 200, 300), np.float32)
    canvas[0, 20:60, 200:230] = 0  # dark and far from the center
    saved("drawn.png", canvas)
    saved("own.png", strokes())
    (drawn, same_size), _ = ask(capsys, trained, "drawn.png", "own.png")
    assert (drawn["centred"], same_size["centred"]) == (True, False)
    lit = np.argwhere(pictures[0][0] > 0.5)
    assert (np.ptp(lit, axis=0) + 1).tolist() == [20, 15]
    assert abs(lit.mean(axis=0) - 13.5).max() <= 1
    edit(trained / "best.npz", lambda meta: meta["options"].update(data="/own/pictures"))
    assert not ask(capsys, trained, "drawn.png")[0][0]["centred"]
    assert ask(capsys, trained, "drawn.png", "--centre", "yes")[0][0]["centred"]


@pytest.mark.slow
def test_dark_ink_is_centred_on_light(trained, capsys, monkeypatch):
    edit(trained / "best.npz", lambda meta: meta["preprocessing"].update(background="light"))
    pictures = shown(monkeypatch)
    canvas = np.ones((1, 200, 300), np.float32)
    canvas[0, 20:60, 200:230] = 0
    ask(capsys, trained, saved("drawn.png", canvas))
    assert pictures[0][0, 0].min() == 1  # the background stays light
    assert abs(np.argwhere(pictures[0][0] < 0.5).mean(axis=0) - 13.5).max() <= 1


# ---- figures


@pytest.mark.slow
def test_figures_are_named_by_the_pictures_and_all_different(trained, capsys):
    for name in ("one/7.png", "other/7.png", "other/7-2.png"):
        saved(name, strokes())
    assert predict.main([str(trained), "one/7.png", "other", "--json"]) == 0
    results = objects(capsys.readouterr().out)
    assert len({result["figure"] for result in results}) == 3
    assert {Path(r["figure"]).parent for r in results} == {trained / "predictions"}
    assert len(list((trained / "predictions").iterdir())) == 3


def test_what_is_drawn(trained, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        plotting, "prediction", lambda *args, **keywords: drawn.update(args=args, **keywords)
    )
    saved("a.png", strokes())
    assert predict.main([str(trained), "a.png"]) == 0
    model = open_run(trained, choose_device("cpu")).model
    path, picture, ranking, score, limit, headline = drawn["args"]
    view = inspection.view(model, picture)
    assert path == str(trained / "predictions" / "a.png") and score == "length" and headline
    assert limit == 0.5
    assert [name for name, _ in ranking] == [str(k) for k in view.ranking]
    shares, grid, equal = drawn["shares"]
    assert grid == model.children_grid and equal == 0.1
    np.testing.assert_allclose(
        shares, inspection.share_map(view.couplings[-1], grid, view.answer), atol=1e-6
    )
    expected = inspection.reconstruction(model, view.poses, view.answer)
    np.testing.assert_allclose(drawn["drawn"], expected, atol=1e-6)


@pytest.mark.slow
def test_no_picture_is_written_over(trained, capsys):
    before = Path(saved("mine/7.png", strokes())).read_bytes()
    assert predict.main([str(trained), "mine/7.png", "--out", "mine"]) == 1
    assert "mine/7.png already exists: choose another --out" in capsys.readouterr().err
    assert Path("mine/7.png").read_bytes() == before
    inside = saved(trained / "predictions" / "7.png", strokes())
    assert predict.main([str(trained), str(inside)]) == 1
    assert "already exists" in capsys.readouterr().err
    assert predict.main([str(trained), "mine/7.png"]) == 0  # it may overwrite its own figures


# ---- faults


@pytest.mark.slow
def test_one_bad_picture_stops_no_other(trained, capsys):
    saved("ok.png", strokes())
    Path("text.png").write_text("hello")
    Path("empty.png").touch()
    Path("none").mkdir()
    Path("nested/inside").mkdir(parents=True)
    frames = [Image.new("L", (9, 9), k) for k in (0, 255)]
    frames[0].save("moving.gif", save_all=True, append_images=frames[1:])
    names = ["text.png", "empty.png", "moving.gif", "missing.png", "ok.png", "none", "nested"]
    results, err = ask(capsys, trained, *names, code=1)
    assert [r["file"] for r in results] == names[:5]
    assert ["error" in r for r in results] == [True] * 4 + [False]
    said = err.splitlines()
    assert len(said) == 6 and all(line.startswith("minicaps.predict: ") for line in said)
    for words in (
        "text.png is not a readable image",
        "empty.png is empty",
        "moving.gif contains 2 images",
        "cannot read missing.png: No such file",
        "none contains no images",
        "nested contains no images",
    ):
        assert words in err


def test_strange_pictures_are_answered(trained, capsys):
    Image.new("L", (1, 1), 200).save("one.png")
    Image.new("L", (3000, 2)).save("thin.png")
    Image.new("RGBA", (40, 40), (0, 0, 0, 0)).save("clear.png")
    Image.fromarray(np.full((30, 20), 40000, np.uint16)).save("wide.png")
    results, err = ask(capsys, trained, "one.png", "thin.png", "clear.png", "wide.png")
    assert [r["blank"] for r in results] == [True] * 4 and not err
    assert predict.main([str(trained), "clear.png", "--no-figures"]) == 0
    assert "uniform: nothing to see" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "code", "said"),
    thinned_rows(
        [
            (["nowhere", "a.png"], 1, "there is no checkpoint nowhere"),
            (["empty", "a.png"], 1, "empty has no best.npz"),
            (["a.png", "a.png"], 1, "a.png is damaged or not a minicaps checkpoint"),
            (["run"], 2, "required: IMAGE"),
            (
                ["run", "a.png", "--out", "a.png"],
                1,
                "cannot write a.png: a file exists where a folder is needed; choose",
            ),
            (["run", "a.png", "--out", "b", "--no-figures"], 2, "no effect with --no-figures"),
            (["run", "a.png", "--invert", "maybe"], 2, "invalid choice"),
        ],
        3,
    ),
)
def test_wrong_usage(trained, capsys, line, code, said):
    saved("a.png", strokes())
    Path("empty").mkdir()
    try:
        assert predict.main(line) == code
    except SystemExit as stopped:
        assert stopped.code == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", thinned([predict.main, plot.main]))
@pytest.mark.parametrize(
    ("name", "value", "said"),
    thinned_rows(
        [
            (
                "convolutions.0.weight",
                np.finfo("f4").max,
                "a score of the network is infinite or NaN",
            ),
            ("decoder.layers.1.bias", np.nan, "has parameters that are infinite or NaN"),
            ("classes.weight", np.inf, "has parameters that are infinite or NaN"),
        ]
    ),
)
def test_numbers_that_are_not_finite(trained, capsys, name, value, said, command):
    fill(trained / "best.npz", f"model/{name}", value)
    capsys.readouterr()
    what = saved("p.png", strokes()) if command is predict.main else "couplings"
    assert command([str(trained), what, "--device", "cpu"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and said in err


def test_ctrl_c(trained, capsys, monkeypatch):
    saved("a.png", strokes())
    monkeypatch.setattr(plotting, "prediction", lambda *args, **keywords: None)
    send_in_call(monkeypatch, inspection, "view", 2, signal.SIGINT)
    assert predict.main([str(trained), "a.png", "a.png", "a.png"]) == 130
    said = capsys.readouterr()
    assert said.err == "minicaps.predict: interrupted\n" and said.out.count("a.png:") == 1


@pytest.mark.parametrize("figures", [False, True])
def test_an_image_without_memory_stops_no_other(trained, capsys, monkeypatch, figures):
    names = [saved(f"{k}.png", strokes(k)) for k in range(3)]
    (expected,), _ = ask(capsys, trained, "2.png")
    monkeypatch.setattr(plotting, "prediction", lambda *args, **keywords: None)
    for owner, name in ((predict, "read_picture"), (inspection, "view" if figures else "scores")):
        with monkeypatch.context() as patch:
            function, calls = getattr(owner, name), itertools.count(1)

            def failing(*args, function=function, calls=calls):
                if next(calls) in ((1, 3) if function.__name__ == "scores" else (2,)):
                    raise MemoryError  # the batch fails, then its second image
                return function(*args)

            patch.setattr(owner, name, failing)
            line = [str(trained), *names, "--json", *([] if figures else ["--no-figures"])]
            assert predict.main(line) == 1
        said = capsys.readouterr()
        results = objects(said.out)
        assert [r["file"] for r in results] == names
        told = "1.png: there is not enough memory for this image: make it smaller"
        assert results[1]["error"] == told and said.err == f"minicaps.predict: {told}\n"
        assert results[2]["scores"] == pytest.approx(expected["scores"], abs=1e-6)


@pytest.mark.skipif(os.name != "posix", reason="requires POSIX file names")
def test_names_that_are_long_or_contain_control_characters(trained, capsys, monkeypatch):
    monkeypatch.setattr(plotting, "prediction", lambda path, *_, **__: Path(path).touch())
    long, strange = saved("n" * 245 + ".png", strokes()), "a\n  minicaps: b\x1b[31m.png"
    saved(strange, strokes())
    too_long, missing = "m" * 300, "c\n  minicaps: fine\x1b[31m"
    assert predict.main([str(trained), too_long, long, missing, strange]) == 1
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        f"minicaps.predict: cannot read {too_long}: File name too long",
        r"minicaps.predict: cannot read c\n  minicaps: fine\x1b[31m: No such file or directory",
    ]
    assert f"{long}: " in said.out and r"a\n  minicaps: b\x1b[31m.png: " in said.out
    assert "\x1b" not in said.out
    assert len(list((trained / "predictions").iterdir())) == 2


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="requires POSIX permissions")
def test_a_folder_where_an_ordinary_user_may_not_write(capsys):
    picture = strokes()
    with tempfile.TemporaryDirectory() as place:  # not inside a folder that only root can enter
        os.chmod(place, 0o755)
        trained = run(out=f"{place}/run")
        saved(f"{place}/a.png", picture)
        os.chmod(trained, 0o555)
        with ordinary_user():
            assert predict.main([str(trained), f"{place}/a.png"]) == 1
            said = capsys.readouterr()
            results, err = ask(capsys, trained, f"{place}/a.png")
    told = f"cannot write {place}/run/predictions: Permission denied; choose another --out, or skip"
    assert told in said.err
    assert "a.png" not in said.out and len(results) == 1 and not err  # --no-figures helps


# ---- help


def test_help(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stopped:
        predict.main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert stopped.value.code == 0 and len(lines) <= 60 and max(map(len, lines)) <= 80
