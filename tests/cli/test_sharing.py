"""Independent jobs that several processes share."""

import io
import sys

import pytest

from minicaps.cli import sharing
from minicaps.cli.signals import StopRequest
from minicaps.errors import DataError, Interrupted
from minicaps.storage import InUse, claimed


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setattr(sharing, "PAUSE", 0.01)
    monkeypatch.setattr(sharing, "STEP", 0.01)
    monkeypatch.chdir(tmp_path)


class Work:
    """Jobs that note when they are done; `before` is called with the title of each."""

    def __init__(self, titles, before=lambda title: None):
        self.log, self.before = [], before
        self.jobs = [self._job(title) for title in titles]

    def _job(self, title):
        def work():
            self.before(title)
            self.log.append(title)

        return sharing.Job(title, title, f"{title}.lock", lambda: title in self.log, work)


def share(work, stop=False):
    sharing.share("test", work.jobs, stop)


def test_jobs_are_done_in_order_and_announced(capsys, tmp_path):
    share(work := Work("abc"))
    assert work.log == ["a", "b", "c"]
    assert capsys.readouterr().out.split() == ["a", "b", "c"]
    share(work)
    assert work.log == ["a", "b", "c"]
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_another_process_holds_is_done_after_the_others(capsys):
    claim = claimed("a.lock")
    claim.__enter__()
    work = Work("abc", lambda title: title == "c" and claim.__exit__(None, None, None))
    share(work)
    assert work.log == ["b", "c", "a"]
    assert "Waiting" not in capsys.readouterr().out


def test_the_end_is_waited_for(monkeypatch, capsys):
    """The other process stops while this one waits."""
    claim, waits = claimed("a.lock"), []
    claim.__enter__()

    def wait(seconds, stop):
        waits.append(seconds)
        if len(waits) == 4:
            claim.__exit__(None, None, None)

    monkeypatch.setattr(sharing, "_wait", wait)
    share(work := Work("ab"))
    assert work.log == ["b", "a"] and waits == [0.01, 0.02, 0.04, 0.08]
    assert capsys.readouterr().out.count("Waiting for other processes to finish: a. If") == 1


def test_a_job_that_another_process_did_meanwhile_is_not_done_again():
    work = Work("ab", lambda title: work.log.append("b"))
    share(work)
    assert work.log == ["b", "a"]


def test_a_stop_ends_the_wait():
    stop = StopRequest()
    with claimed("a.lock"), pytest.raises(Interrupted):
        share(Work("ab", lambda title: setattr(stop, "signal", 2)), stop)


def test_after_an_error_nothing_is_begun(tmp_path):
    def fail(title):
        if title == "b":
            raise DataError("missing")

    work = Work("abc", fail)
    with pytest.raises(DataError, match="missing"):
        share(work)
    assert work.log == ["a"] and list(tmp_path.iterdir()) == []


def test_all_but_those_in_use_are_made():
    made = []

    def make(name):
        if name in "ac":
            raise InUse(name)
        made.append(name)
        return name.upper()

    with pytest.raises(InUse):
        sharing.all_of(make, "abcd")
    assert made == ["b", "d"]
    assert sharing.all_of(make, "bd") == {"b": "B", "d": "D"}


def test_lines_of_several_ranks_begin_with_a_title(monkeypatch):
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "__stdout__", out)
    monkeypatch.setattr(sys, "__stderr__", err)
    with sharing._speaking_as("one\x1b", several=True):
        print("\nfirst", end=" ")
        print("line")
        with sharing.speaking_as("two"):
            print("second\nthird")
            print("bad", file=sys.stderr)
        print("fourth")
    assert out.getvalue() == "[one\\x1b] first line\n[two] second\n[two] third\n[one\\x1b] fourth\n"
    assert err.getvalue() == "[two] bad\n"
