"""Test that IDX files are read exactly and that every fault of a file is reported."""

import gzip
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from idx_files import CODES, idx_bytes, zipped

from minicaps.data.idx import parse_idx, read_idx
from minicaps.errors import DataError

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def error_of(tmp_path, content):
    path = tmp_path / "some-file"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@given(
    st.sampled_from(sorted(CODES)).flatmap(
        lambda kind: arrays.arrays(kind, arrays.array_shapes(max_dims=4, max_side=5, min_side=0))
    )
)
def test_every_type_and_shape_is_read_back(array):
    read = parse_idx(idx_bytes(array), "memory")
    assert read.dtype == array.dtype
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)


def test_bytes_are_big_endian():
    header = bytes([0, 0, 0x0C, 1, 0, 0, 0, 2])
    np.testing.assert_array_equal(
        parse_idx(header + bytes([0, 0, 1, 0, 255, 255, 255, 254]), ""), [256, -2]
    )


@pytest.mark.parametrize("name", ["images", "images.gz", "images.txt"])
@pytest.mark.parametrize("pack", [bytes, zipped], ids=["plain", "gzipped"])
def test_gzip_is_told_by_the_bytes_not_the_name(tmp_path, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(idx_bytes(IMAGES)))
    np.testing.assert_array_equal(read_idx(path), IMAGES)


def test_the_array_can_be_written_to(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(idx_bytes(IMAGES))
    read_idx(path)[0] = 7


@pytest.mark.parametrize("pack", [bytes, zipped], ids=["plain", "gzipped"])
def test_truncated_numbers_name_both_byte_counts(tmp_path, pack):
    message = error_of(tmp_path, pack(idx_bytes(IMAGES)[:-5]))
    assert "truncated" in message
    assert "40 bytes" in message  # header 16, pixels 24
    assert "35" in message


@pytest.mark.parametrize("pack", [bytes, zipped], ids=["plain", "gzipped"])
def test_trailing_bytes_are_refused(tmp_path, pack):
    message = error_of(tmp_path, pack(idx_bytes(IMAGES) + b"??"))
    assert "has trailing bytes" in message
    assert "40 bytes" in message


@pytest.mark.parametrize("start", [b"", idx_bytes(IMAGES)], ids=["no header", "trailing"])
@pytest.mark.parametrize("pack", [bytes, zipped], ids=["plain", "gzipped"])
def test_a_file_is_read_only_as_far_as_its_header_says(tmp_path, pack, start):
    path = tmp_path / "bomb"
    path.write_bytes(pack(start + bytes(2**26)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="trailing" if start else "not an IDX file"):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_truncated_header_names_both_byte_counts(tmp_path):
    message = error_of(tmp_path, idx_bytes(IMAGES)[:10])
    assert "truncated" in message
    assert "16 bytes" in message
    assert "10" in message


def test_empty_file(tmp_path):
    assert "empty" in error_of(tmp_path, b"")


@pytest.mark.parametrize(
    "content",
    [b"\x89PNG\r\n\x1a\n", b"<!DOCTYPE html>", b"\0\0", b"\0\0\x0a\x01\0\0\0\0", b"\0\0\x08\0\x05"],
    ids=["png", "html", "two bytes", "unknown type", "no dimensions"],
)
def test_what_is_not_idx_shows_its_first_bytes(tmp_path, content):
    message = error_of(tmp_path, content)
    assert "not an IDX file" in message
    assert content[:4].hex(" ") in message


def test_an_empty_gzip_file_is_not_idx(tmp_path):
    assert "not an IDX file" in error_of(tmp_path, zipped(b""))


@pytest.mark.parametrize(
    "damage",
    [
        lambda z: z[:-9],
        lambda z: z[:5],
        lambda z: z[:14] + b"\xff\xff\xff" + z[17:],
        lambda z: z + b"junk",
    ],
    ids=["cut", "cut header", "flipped", "junk behind"],
)
def test_damaged_gzip(tmp_path, damage):
    assert "damaged gzip" in error_of(tmp_path, damage(zipped(idx_bytes(IMAGES))))


def test_wrong_checksum_inside_gzip(tmp_path):
    content = bytearray(gzip.compress(idx_bytes(IMAGES)))
    content[-8] ^= 1
    assert "damaged gzip" in error_of(tmp_path, bytes(content))


@pytest.mark.parametrize("sizes", [(0, 2**32 - 1, 2**32 - 1, 2**32 - 1), (1,) * 64 + (0,)])
def test_impossible_shapes(tmp_path, sizes):
    content = struct.pack(f">BBBB{len(sizes)}I", 0, 0, 0x08, len(sizes), *sizes)
    assert "impossible" in error_of(tmp_path, content)


@given(st.binary(max_size=40) | st.binary(max_size=30).map(lambda tail: b"\0\0\x08\x02" + tail))
def test_no_bytes_at_all_cause_another_error(content):
    try:
        parse_idx(content, "memory")
    except DataError as error:
        assert "memory" in str(error)


def test_a_file_that_is_missing_or_a_folder(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*nowhere"):
        read_idx(tmp_path / "nowhere")
    with pytest.raises(DataError, match="cannot read"):
        read_idx(tmp_path)
