"""`python -m minicaps.explore.playground`, and the presets, without a browser."""

import json
import webbrowser

from lessons.machinery.page import LESSONS
from minicaps.explore.playground.__main__ import main
from minicaps.explore.playground.presets import presets


def test_the_page_is_written_and_opened(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0 and main(["--out", "other.html", "--no-browser"]) == 0
    assert opened == [(tmp_path / "votes.html").as_uri()]
    assert (tmp_path / "votes.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert (tmp_path / "other.html").is_file()
    assert "wrote other.html" in capsys.readouterr().out


def test_a_page_that_cannot_be_written_is_an_error_message(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["--no-browser", "--out", str(tmp_path / "file" / "votes.html")]) == 1
    error = capsys.readouterr().err
    assert "cannot write" in error and error.endswith("; choose another --out\n")


def test_the_folder_of_the_page_is_created(tmp_path):
    assert main(["--no-browser", "--out", str(tmp_path / "new" / "votes.html")]) == 0
    assert (tmp_path / "new" / "votes.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_preset_names_a_section_of_its_lesson_and_a_set_of_votes():
    found = json.loads(json.dumps(presets()))
    assert len({one["id"] for one in found["presets"]}) == len(found["presets"])
    for one in found["presets"]:
        lesson = (LESSONS / f"{one['page']}.md").read_text("utf-8")
        assert f"\n## {one['section']} " in lesson
        assert one["votes"] in found["sets"]
