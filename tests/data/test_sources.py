"""Test that MNIST and Fashion-MNIST are found, verified, and downloaded safely.

The data sets of these tests are tiny, with the file names and checksums of real ones, and a local
server acts as the mirrors.
"""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pooch
import pytest
from commands import said_by
from idx_files import (
    CLOSED,
    FILES,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    Tiny,
    arrays_of,
    idx_bytes,
    isolate,
    md5,
    zipped,
)
from thinning import thinned, thinned_rows

from minicaps.data import __main__ as command
from minicaps.data import download, load
from minicaps.errors import DataError


@pytest.fixture(autouse=True)
def places(monkeypatch, tmp_path):
    return isolate(monkeypatch, tmp_path)


@pytest.fixture
def mnist(monkeypatch):
    return Tiny(monkeypatch, "mnist", arrays_of(0))


@pytest.fixture
def fashion(monkeypatch):
    return Tiny(monkeypatch, "fashion-mnist", arrays_of(1))


@pytest.fixture
def server():
    """Run a web server: `server.answers` maps a path to bytes or to (bytes, announced length)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            answer = answers.get(self.path)
            if answer is None:
                self.send_error(404)
                return
            content, length = answer if isinstance(answer, tuple) else (answer, len(answer))
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    answers, asked = {}, []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        served.answers, served.asked = answers, asked
        served.url = f"http://127.0.0.1:{served.server_port}"
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def check(data, arrays):
    for split, images, labels in (
        (data.train, TRAIN_IMAGES, TRAIN_LABELS),
        (data.test, TEST_IMAGES, TEST_LABELS),
    ):
        assert split.images.dtype == np.float32
        np.testing.assert_allclose(split.images[:, 0], arrays[images] / 255, rtol=1e-6)
        assert split.labels.dtype == np.int64
        np.testing.assert_array_equal(split.labels, arrays[labels])


def failure(*arguments, **options):
    with pytest.raises(DataError) as caught:
        load(*arguments, **options)
    return str(caught.value)


# ---- where files are found


@pytest.mark.parametrize("place", ["told", "environment", "cache", "debian"])
@pytest.mark.parametrize("inside", ["", "mnist"])
def test_every_place_is_searched(monkeypatch, places, mnist, place, inside):
    mnist.write(places / place / inside)
    if place == "environment":
        monkeypatch.setenv(download.ENVIRONMENT, str(places / place))
    check(load("mnist", folder=places / place if place == "told" else None), mnist.arrays)


@pytest.mark.parametrize(
    ("pack", "suffix"), [(bytes, ""), (zipped, ".gz"), (zipped, ""), (bytes, ".gz")]
)
def test_gzipped_or_not(places, mnist, pack, suffix):
    mnist.write(places / "told", pack, suffix)
    check(load("mnist", folder=places / "told"), mnist.arrays)


def test_the_told_folder_comes_first_then_the_others_in_order(monkeypatch, places, mnist):
    order = ["told", "environment", "cache", "debian"]
    (places / "told").mkdir()
    monkeypatch.setenv(download.ENVIRONMENT, str(places / "environment"))
    assert download.roots(places / "told") == [places / name for name in order]
    for place in reversed(order):
        mnist.write(places / place)
        assert download.find("mnist", TRAIN_IMAGES, places / "told").parent == places / place


def test_two_data_sets_in_one_folder(places, mnist, fashion):
    mnist.write(places / "told" / "mnist")
    fashion.write(places / "told" / "fashion-mnist")
    check(load("mnist", folder=places / "told"), mnist.arrays)
    check(load("fashion-mnist", folder=places / "told"), fashion.arrays)


def test_the_test_split_stays_whole_under_a_limit(places, mnist):
    mnist.write(places / "cache")
    data = load("mnist", limit=3)
    np.testing.assert_array_equal(data.train.labels, mnist.arrays[TRAIN_LABELS][:3])
    assert len(data.train.images) == 3
    assert len(data.test) == 7
    with pytest.raises(ValueError, match="limit 21 exceeds the 20"):
        load("mnist", limit=21)


# ---- what is refused


def test_a_folder_that_does_not_exist(places, mnist):
    assert "nowhere does not exist" in failure("mnist", folder=places / "nowhere")


def test_the_files_of_another_data_set_are_refused(places, mnist, fashion):
    mnist.write(places / "told")
    message = failure("fashion-mnist", folder=places / "told")
    assert str(places / "told" / TRAIN_IMAGES) in message
    assert "belongs to mnist, not to fashion-mnist" in message


def test_files_of_unknown_content_are_refused_and_kept(places, mnist):
    mnist.write(places / "told")
    path = places / "told" / f"{TEST_LABELS}.gz"
    other = idx_bytes(np.zeros(7, dtype=np.uint8))
    path.write_bytes(zipped(other))
    message = failure("mnist", folder=places / "told")
    assert str(path) in message
    assert md5(other) in message
    assert path.exists()


def test_a_damaged_file_is_named(places, mnist):
    mnist.write(places / "told")
    path = places / "told" / f"{TRAIN_IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:-20])
    message = failure("mnist", folder=places / "told")
    assert str(path) in message
    assert "damaged gzip" in message


def test_a_file_that_cannot_be_read(places, mnist):
    mnist.write(places / "told")
    (places / "told" / f"{TRAIN_IMAGES}.gz").unlink()
    (places / "told" / TRAIN_IMAGES).mkdir()
    assert f"cannot read {places / 'told' / TRAIN_IMAGES}" in failure(
        "mnist", folder=places / "told"
    )


def test_a_folder_that_cannot_be_entered(monkeypatch, places, mnist):
    (places / "cache").mkdir()
    stat = Path.stat

    def guarded(path, **options):
        if path.parent == places / "cache":
            raise PermissionError(13, "Permission denied")
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", guarded)
    message = failure("mnist")
    assert f"cannot access {places / 'cache' / TRAIN_IMAGES}: Permission denied" in message


# ---- downloads


def serve(server, tiny, mirror, files=FILES):
    for file in files:
        server.answers[f"/{mirror}/{file}.gz"] = zipped(tiny.contents[file])


def test_download_into_the_cache_once(places, mnist, server):
    serve(server, mnist, "one")
    mnist.set_mirrors(f"{server.url}/one/")
    check(load("mnist"), mnist.arrays)
    assert files_below(places) == sorted(f"cache/mnist/{file}.gz" for file in FILES)
    assert len(server.asked) == 4
    check(load("mnist"), mnist.arrays)
    assert len(server.asked) == 4


def test_only_missing_files_are_downloaded(places, mnist, server):
    mnist.write(places / "told")
    (places / "told" / f"{TEST_LABELS}.gz").unlink()
    serve(server, mnist, "one")
    mnist.set_mirrors(f"{server.url}/one/")
    check(load("mnist", folder=places / "told"), mnist.arrays)
    assert server.asked == [f"/one/{TEST_LABELS}.gz"]


def no_answer(good):
    return None


def wrong_file(good):
    return zipped(b"something else")


def cut_connection(good):
    return good[: len(good) // 2], len(good)


@pytest.mark.parametrize("fault", thinned([no_answer, wrong_file, cut_connection]))
def test_when_a_mirror_fails_the_next_is_tried(places, mnist, server, fault):
    serve(server, mnist, "one")
    serve(server, mnist, "two")
    faulty = f"/one/{TRAIN_LABELS}.gz"
    server.answers[faulty] = fault(server.answers[faulty])
    mnist.set_mirrors(f"{server.url}/one/", f"{server.url}/two/")
    check(load("mnist"), mnist.arrays)
    assert f"/two/{TRAIN_LABELS}.gz" in server.asked
    assert files_below(places) == sorted(f"cache/mnist/{file}.gz" for file in FILES)


@pytest.mark.parametrize(
    ("fault", "reason"),
    thinned_rows(
        [
            (no_answer, "404"),
            (wrong_file, "checksum"),
            (cut_connection, "(IncompleteRead|[Cc]onnection|checksum)"),
        ]
    ),
)
def test_when_all_mirrors_fail_nothing_is_left(places, mnist, server, fault, reason):
    serve(server, mnist, "one")
    path = f"/one/{TRAIN_IMAGES}.gz"
    server.answers[path] = fault(server.answers[path])
    mnist.set_mirrors(f"{server.url}/one/", CLOSED)
    message = failure("mnist")
    assert re.search(f"tried {server.url}{path}: .*{reason}", message)
    assert f"tried {CLOSED}{TRAIN_IMAGES}.gz" in message
    assert files_below(places) == []


def test_an_interrupted_download_leaves_nothing(monkeypatch, places, mnist):
    def interrupted(self, url, output_file, pooch, check_only=False):
        Path(output_file).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load("mnist")
    assert files_below(places) == []


def test_without_network_the_error_says_what_to_do(monkeypatch, places, mnist):
    (places / "told").mkdir()
    monkeypatch.setenv(download.ENVIRONMENT, str(places / "environment"))
    message = failure("mnist", folder=places / "told")
    for place in ("told", "environment", "cache", "debian"):
        assert f"searched {places / place}" in message
    assert f"tried {CLOSED}{TRAIN_IMAGES}.gz" in message
    assert all(f"{file}.gz" in message for file in FILES)
    assert "FOLDER/mnist" in message
    assert "--data-dir" in message
    assert download.ENVIRONMENT in message


def test_the_command_prints_the_error_without_a_network_in_lines(places, mnist, capsys):
    said = said_by(capsys, command.main, "fetch", "mnist", code=1).err
    assert "\\n" not in said
    first, *others = said.splitlines()
    assert first == "minicaps.data: mnist was not found and could not be downloaded."
    begins = [line.split()[0] for line in others]
    assert begins == ["searched", "searched", "tried", "Put"]
    assert all(line.startswith("  ") for line in others)


def test_a_cache_that_cannot_be_written(places, mnist, server):
    (places / "cache").write_text("a file where the folder should be")
    serve(server, mnist, "one")
    mnist.set_mirrors(f"{server.url}/one/")
    message = failure("mnist")
    assert f"cannot write {places / 'cache' / 'mnist' / TRAIN_IMAGES}" in message
    assert "--data-dir" in message


def test_a_read_only_cache(monkeypatch, places, mnist):
    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pooch.utils.os.makedirs", refuse)
    assert "Permission denied" in failure("mnist")
