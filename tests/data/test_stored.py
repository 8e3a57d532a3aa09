"""Images that are read from a file stand for an array of the same bits."""

import numpy as np
import pytest
from own_files import noise

from minicaps.backend import choose_device
from minicaps.data import Split, stored
from minicaps.data.batches import batches, resident
from minicaps.data.compose import compose
from minicaps.data.images import sampled
from minicaps.data.stored import PixelFile, Record, Stored, encoded, joined, on_host
from minicaps.errors import DataError

SIZE = (6, 5)


def images_of(count=40, channels=3):
    """Return images of bytes and of floats, the first of them gray."""
    images = noise(0, count, channels, *SIZE) / np.float32(255)
    images[1::3] = np.random.default_rng(1).random(images[1::3].shape, np.float32)
    images[::4] = images[::4, :1]
    return images


def file_of(path, images):
    """Write images as the cache does, gray ones with a single channel."""
    records, end = [], 0
    with open(path, "wb") as file:
        for image in images:
            gray = (image == image[:1]).all()
            content, floats = encoded(image[:1] if gray else image)
            crc, channels = stored.zlib.crc32(content), 1 if gray else len(image)
            records.append(Record(end, channels, floats, crc, image.min(), image.max()))
            end += file.write(content)
    return PixelFile(path, records, SIZE)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(stored, "BLOCK", 7 * 4 * 3 * SIZE[0] * SIZE[1])
    monkeypatch.setattr(stored, "FEW", 5)


@pytest.fixture
def pair(tmp_path):
    """Return images in memory and the same in a file."""
    images = images_of()
    return images, Stored(file_of(tmp_path / "images", images), np.arange(len(images)))


def equal(one, other):
    one, other = np.asarray(one), np.asarray(other)
    return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()


WHICH = {
    "number": 3,
    "last": -1,
    "of NumPy": np.int64(2),
    "slice": slice(5, 30, 4),
    "array": np.array([7, 7, 0, -2]),
    "table": np.array([[1, 2], [3, 4]]),
    "list": [4, 1],
    "mask": np.arange(40) % 3 == 0,
    "nothing": np.array([], int),
    "with axes": (slice(2, 9), 0, slice(None), 2),
    "number with axes": (2, slice(0, 1)),
}


@pytest.mark.parametrize("which", WHICH.values(), ids=WHICH)
def test_indexing_is_that_of_an_array(pair, which):
    images, there = pair
    assert equal(there[which], images[which])
    assert equal(there.inverted()[which], (1 - images)[which])


def test_the_whole_is_that_of_an_array(pair):
    images, there = pair
    assert equal(there, images) and (there.shape, there.nbytes) == (images.shape, images.nbytes)
    assert equal(np.array(list(there)), images)
    for one, other in ((there, images), (there.inverted(), 1 - images)):
        assert (one.min(), one.max()) == (other.min(), other.max())
    twice = there.inverted().inverted()
    assert equal(twice, 1 - (1 - images)) and not equal(twice, images)


def test_selections_are_read_if_they_are_few_and_otherwise_wait(pair):
    images, there = pair
    for which in (np.arange(40) % 2 == 0, slice(3, None), np.arange(39, -1, -1)):
        assert isinstance(there.take(which), Stored) and equal(there.take(which), images[which])
    assert isinstance(there.take([1, 2, 3]), np.ndarray)
    assert isinstance(sampled(there), Stored) and equal(sampled(there), sampled(images))


def test_joined_parts_remain_in_their_file(pair, tmp_path):
    images, there = pair
    again = joined([there.some(slice(30, 40)), there.some(slice(0, 30))])
    assert isinstance(again, Stored) and equal(again, np.roll(images, 10, axis=0))
    other = Stored(file_of(tmp_path / "other", images), np.arange(40))
    assert equal(joined([there, other, images]), np.concatenate([images] * 3))


def test_bytes_are_stored_only_if_they_give_the_same_bits():
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    for image, floats in (
        (every / np.float32(255), False),
        (np.nextafter(every / np.float32(255), np.float32(2)), True),
        (np.full((1, 2, 2), -0.0, np.float32), True),
        (np.full((1, 2, 2), 1000 / 65535, np.float32), True),
    ):
        content, found = encoded(image)
        assert found == floats and len(content) == image.size * (4 if floats else 1)


def test_a_batch_reads_only_its_own_rows(pair, monkeypatch):
    images, there = pair
    split, read = Split(there, np.arange(40) % 4), []
    original = PixelFile.read
    monkeypatch.setattr(
        PixelFile, "read", lambda self, k, out: (read.append(k), original(self, k, out))
    )
    found, labels = split.pick(np.array([9, 2, 30]))
    assert read == [9, 2, 30] and labels.tolist() == [1, 2, 2]
    assert equal(found, images[[9, 2, 30]])
    for parts in split.cut(np.arange(40) < 20):
        parts.take(slice(0, 20)).labels.sum()
    assert len(read) == 3


def test_batches_checksums_and_composed_images_are_those_of_an_array(pair):
    images, there = pair
    labels = np.arange(40) % 4
    one, other = Split(images, labels), Split(there, labels)
    assert one.sha256() == other.sha256()
    changes = {"shift": 1, "rotate": 20, "zoom": 0.2, "flip": "both", "brightness": 0.3}
    for more in (changes, {"balance": True}, {"shift": 2, "start": 3}):
        ways = [batches(split, 6, seed=3, epoch=1, **more) for split in (one, other)]
        for (a, b), (c, d) in zip(*ways, strict=True):
            assert equal(a, c) and equal(b, d)
    composed = [compose(split, 4, seed=1) for split in (one, other)]
    assert composed[0].sha256() == composed[1].sha256()
    assert equal(*(each.pick(np.arange(9))[0] for each in composed))


def test_images_move_to_a_gpu_block_by_block(pair, strict_cupy):
    images, there = pair
    labels = np.arange(40) % 4
    for split in (Split(there, labels), compose(Split(there, labels), 4)):
        moved = resident(split, choose_device("gpu"))
        assert isinstance(moved.pixels, strict_cupy.ndarray)
        assert equal(on_host(moved.pixels), images)


def test_damage_in_use_is_a_sentence(pair):
    _, there = pair
    for change in (
        lambda file: (file.seek(0), file.write(b"\1\2\3\4")),
        lambda file: file.truncate(9),
    ):
        with open(there.file.path, "r+b") as file:
            change(file)
        with pytest.raises(
            DataError, match=r"images, which holds decoded images, is damaged or has"
        ):
            there[:3]
