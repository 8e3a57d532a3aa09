"""Test reading an image from a file and resizing it."""

import re

import numpy as np
import pytest
from PIL import Image

from minicaps.data.images import fit, picture_size, read_frames, read_picture
from minicaps.errors import DataError


def saved(path, numbers, **keywords):
    Image.fromarray(np.asarray(numbers)).save(path, **keywords)
    return path


def refusal(path):
    with pytest.raises(DataError) as caught:
        read_picture(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


BYTES = np.array([[0, 51], [102, 255], [204, 153]], dtype=np.uint8)  # 3 high, 2 wide


def test_bytes_are_scaled(tmp_path):
    for name in ("grey.png", "grey.tif", "grey.bmp"):
        read = read_picture(saved(tmp_path / name, BYTES))
        assert read.dtype == np.float32 and read.flags.c_contiguous
        np.testing.assert_allclose(read, [[[0, 0.2], [0.4, 1], [0.8, 0.6]]], rtol=1e-6)


def test_colours_come_first_and_in_their_order(tmp_path):
    colour = np.stack([BYTES, 0 * BYTES, 255 - BYTES], axis=-1)
    read = read_picture(saved(tmp_path / "colour.png", colour))
    np.testing.assert_allclose(read, colour.transpose(2, 0, 1) / 255, rtol=1e-6)
    assert read.flags.c_contiguous


def test_jpeg(tmp_path):
    smooth = np.add.outer(np.arange(16), np.arange(24)).astype(np.uint8) * 6
    read = read_picture(saved(tmp_path / "smooth.jpg", smooth, quality=95))
    np.testing.assert_allclose(read[0], smooth / 255, atol=0.02)


def test_bits_and_palettes(tmp_path):
    Image.fromarray(BYTES).point(lambda v: v > 120, "1").save(tmp_path / "bits.png")
    assert read_picture(tmp_path / "bits.png").tolist() == [[[0, 0], [0, 1], [1, 1]]]
    picture = Image.frombytes("P", (2, 1), bytes([0, 1]))
    picture.putpalette([255, 0, 51, 0, 102, 255])
    picture.save(tmp_path / "palette.png")
    np.testing.assert_allclose(
        read_picture(tmp_path / "palette.png"), [[[1, 0]], [[0, 0.4]], [[0.2, 1]]], rtol=1e-6
    )


def test_a_transparent_image_lies_on_a_ground_that_shows_it(tmp_path):
    light = np.array([[[255, 204, 0, 255], [255, 255, 255, 0], [255, 255, 0, 51]]], dtype=np.uint8)
    read = read_picture(saved(tmp_path / "light.png", light))  # on black
    np.testing.assert_allclose(read[:, 0], [[1, 0, 0.2], [0.8, 0, 0.2], [0, 0, 0]], rtol=1e-6)
    dark = np.array([[[0, 51, 0, 255], [255, 255, 255, 0], [0, 0, 255, 51]]], dtype=np.uint8)
    read = read_picture(saved(tmp_path / "dark.png", dark))  # on white
    np.testing.assert_allclose(read[:, 0], [[0, 1, 0.8], [0.2, 1, 0.8], [0, 1, 1]], rtol=1e-6)
    gray = np.array([[[255, 51], [178, 255]]], dtype=np.uint8)
    read = read_picture(saved(tmp_path / "la.png", gray))
    np.testing.assert_allclose(read, [[[0.2, 178 / 255]]], rtol=1e-6)
    read = read_picture(saved(tmp_path / "marked.png", BYTES, transparency=255))
    np.testing.assert_allclose(read, [[[0, 0.2], [0.4, 1], [0.8, 0.6]]], rtol=1e-6)
    for nothing in (0, 255):  # nothing to see, and no number that is none
        clear = np.full((2, 2, 4), nothing, np.uint8)
        clear[..., 3] = 0
        assert (read_picture(saved(tmp_path / "clear.png", clear)) == 0).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_black_ink_on_nothing_is_not_constant(tmp_path, mode):
    ink = Image.new("RGBA", (12, 12), (0, 0, 0, 0))
    ink.paste((0, 0, 0, 255), (3, 3, 9, 9))
    ink.convert(mode).save(tmp_path / "ink.png")
    read = read_picture(tmp_path / "ink.png")
    assert (read.min(), read.max()) == (0, 1)
    assert (read[:, 0] == 1).all() and (read[:, 5, 5] == 0).all()


@pytest.mark.parametrize("color", [0, 127, 128, 255])
@pytest.mark.parametrize("suffix", ["png", "gif", "webp"])
def test_a_shape_of_one_color_on_nothing_is_seen(tmp_path, color, suffix):
    """Its contrast is at least half of the range, with palettes and in other formats, too."""
    shape = Image.new("P", (12, 12), 0)
    shape.putpalette([color] * 6)  # the transparent color is that of the shape
    shape.paste(1, (3, 3, 9, 9))
    shape.info["transparency"] = 0
    path = tmp_path / f"shape.{suffix}"
    if suffix == "webp":
        shape.convert("RGBA").save(path, lossless=True)
    else:
        shape.save(path, transparency=0)
    read = read_picture(path)
    inside, outside = read[:, 3:9, 3:9], read[:, 0]
    assert (inside == np.float32(color / 255)).all() and (outside == (color < 128)).all()


def test_sixteen_bits_are_scaled(tmp_path):
    deep = np.array([[0, 13107], [65535, 4096]], dtype=np.uint16)
    for name in ("deep.png", "deep.tif"):
        read = read_picture(saved(tmp_path / name, deep))
        np.testing.assert_allclose(read, deep[None] / 65535, rtol=1e-6)


def test_floats_are_read_from_0_to_1_only(tmp_path):
    floats = np.array([[0, 0.25], [1, 0.5]], dtype=np.float32)
    np.testing.assert_array_equal(read_picture(saved(tmp_path / "f.tif", floats))[0], floats)
    assert "pixels from 0 to 255" in refusal(saved(tmp_path / "g.tif", 255 * floats))
    assert "pixels from -1 to 0" in refusal(saved(tmp_path / "h.tif", floats - 1))
    floats[0, 0] = np.nan
    assert "pixels from nan to nan" in refusal(saved(tmp_path / "n.tif", floats))
    wide = np.array([[0, 1 << 20]], dtype=np.int32)
    assert "from 0 to 1.04858e+06: expected" in refusal(saved(tmp_path / "i.tif", wide))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_stands_as_the_camera_was_held(tmp_path, orientation):
    turned = {
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: a[::-1, ::-1],
        4: np.flipud,
        5: np.transpose,
        6: lambda a: np.rot90(a, -1),
        7: lambda a: np.rot90(a, 2).T,
        8: np.rot90,
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / "turned.png", BYTES, exif=exif)
    read = read_picture(path)
    np.testing.assert_allclose(read[0], turned[orientation](BYTES) / 255, rtol=1e-6)
    assert picture_size(path) == read.shape[1:]


def test_other_colour_models_are_converted(tmp_path):
    picture = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    picture.save(tmp_path / "print.tif")
    np.testing.assert_allclose(read_picture(tmp_path / "print.tif")[:, 0, 0], [1, 0, 0])


def test_faulty_files_are_named_with_what_to_do(tmp_path):
    (tmp_path / "empty.png").write_bytes(b"")
    assert refusal(tmp_path / "empty.png").endswith("is empty (0 bytes): replace or remove it")
    (tmp_path / "text.png").write_text("no picture at all\n")
    assert "is not a readable image" in refusal(tmp_path / "text.png")
    noise = np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)
    for name in ("whole.png", "whole.jpg", "whole.bmp", "whole.tif"):
        content = saved(tmp_path / name, noise).read_bytes()
        for share in (0.5, 0.9):
            cut = tmp_path / f"cut-{name}"
            cut.write_bytes(content[: int(share * len(content))])
            assert re.search("replace or remove it", refusal(cut))
    damaged = bytearray((tmp_path / "whole.png").read_bytes())
    damaged[len(damaged) // 2] ^= 255
    (tmp_path / "damaged.png").write_bytes(damaged)
    assert "is damaged" in refusal(tmp_path / "damaged.png")
    assert "cannot read" in refusal(tmp_path / "missing.png")
    assert "cannot read" in refusal(tmp_path)  # a folder


def test_several_pictures_in_one_file_are_refused(tmp_path):
    frames = [Image.fromarray(BYTES), Image.fromarray(255 - BYTES)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert "contains 2 images: save each in a separate file" in refusal(tmp_path / "moving.gif")


def test_a_picture_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert "too large" in refusal(saved(tmp_path / "huge.png", np.zeros((6, 6), np.uint8)))


@pytest.mark.parametrize("read", [read_picture, picture_size, lambda path: list(read_frames(path))])
def test_a_small_file_with_too_many_pixels_is_refused(tmp_path, read):
    path = tmp_path / "black.png"
    Image.new("1", (13_000, 13_000)).save(path)
    assert path.stat().st_size < 1e6
    with pytest.raises(DataError, match="has 13,000×13,000 pixels, but at most 50,000,000 are"):
        read(path)


# ---- fit


def test_a_picture_of_the_right_size_stays_as_it_is():
    picture = np.random.default_rng(0).random((3, 4, 5), dtype=np.float32)
    assert np.array_equal(fit(picture, (4, 5), 3), picture)


@pytest.mark.parametrize(
    ("shape", "size", "inside"),
    [
        ((10, 20), (8, 8), (slice(2, 6), slice(0, 8))),
        ((20, 10), (8, 8), (slice(0, 8), slice(2, 6))),
        ((10, 20), (40, 56), (slice(6, 34), slice(0, 56))),
        ((3, 3), (6, 8), (slice(0, 6), slice(1, 7))),
        ((1, 1000), (5, 5), (slice(2, 3), slice(0, 5))),  # thinner than a pixel
    ],
)
def test_proportions_are_kept_and_the_rest_is_filled(shape, size, inside):
    fitted = fit(np.ones((1, *shape), np.float32), size, fill=0)
    expected = np.zeros((1, *size), np.float32)
    expected[0][inside] = 1
    assert fitted.dtype == np.float32
    np.testing.assert_allclose(fitted, expected, atol=1e-6)
    assert fitted.max() <= 1


def test_the_rest_has_the_color_of_the_border():
    """No black bars beside white paper or a red ground; black stays exactly zero."""
    colors = np.zeros((3, 10, 20), np.float32)
    colors[0], colors[1] = 1, 0.25
    colors[:, 2:8, 4:15] = 0.5
    fitted = fit(colors, (9, 8))
    assert fitted[:, 0].T.tolist() == fitted[:, -1].T.tolist() == [[1, 0.25, 0]] * 8
    one_side = np.zeros((1, 10, 30), np.float32)
    one_side[:, :, 12:] = 1  # most of the border
    assert (fit(one_side, (10, 50))[0, :, [0, -1]] == 1).all()
    dark = 1 - one_side
    np.testing.assert_array_equal(fit(dark, (10, 50)), fit(dark, (10, 50), fill=0))


def test_shrinking_averages():
    picture = np.indices((32, 32)).sum(axis=0)[None] % 2  # a checkerboard
    fitted = fit(picture.astype(np.float32), (4, 4))
    np.testing.assert_allclose(fitted, np.full((1, 4, 4), 0.5), atol=0.02)


def test_grey_is_luminance_and_colour_repeats_grey():
    colours = np.eye(3, dtype=np.float32).reshape(3, 1, 3)  # a red, a green and a blue pixel
    np.testing.assert_allclose(fit(colours, (1, 3), 1), [[[0.299, 0.587, 0.114]]], rtol=1e-6)
    grey = np.array([[[0.25, 0.5]]], dtype=np.float32)
    np.testing.assert_array_equal(fit(grey, (1, 2), 3), np.repeat(grey, 3, axis=0))
    np.testing.assert_allclose(fit(np.ones((3, 2, 2), np.float32), (4, 4), 1), 1, atol=1e-6)
