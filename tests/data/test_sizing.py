"""Custom images get a size that every network can use, unless another one is asked for."""

import numpy as np
import pytest
from own_files import SIZE, noise, npz, write

from minicaps.data import load
from minicaps.data.own.sizing import chosen_size


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(28, 28)] * 3, (28, 28)),
        ([(32, 20)] * 3, (32, 20)),
        ([(40, 40)] * 3, (28, 28)),
        ([(8, 8)] * 3, (28, 28)),
        ([(1, 1)], (28, 28)),
        ([(41, 41)], (28, 28)),
        ([(3000, 4000)] * 2, (21, 28)),
        ([(10, 1000)], (20, 28)),  # no side is too short for a network
        ([(28, 28), (28, 28), (30, 28)], (28, 28)),
        ([(100, 50), (120, 60), (300, 150)], (28, 20)),
        ([(19, 19)], (28, 28)),
    ],
)
def test_the_size_suits_every_network_and_keeps_the_proportions(sizes, expected):
    size, note = chosen_size(sizes)
    assert size == expected
    assert (note is None) == (len(set(sizes)) == 1 and sizes[0] == expected)


def test_the_note_names_the_old_and_the_new_size():
    assert chosen_size([(8, 8)])[1].startswith("images of 8×8 pixels (height × width) are resized")
    _, note = chosen_size([(64, 90), (80, 100)])
    assert "images of 64 to 80 × 90 to 100 pixels" in note and "to 21×28" in note


def folder(path, *sizes):
    for k, size in enumerate(sizes):
        write(path / f"{'ab'[k % 2]}/{k}.png", noise(k, *size))
    return path


def test_a_folder_of_images_of_different_sizes_can_be_read(tmp_path):
    data = load(folder(tmp_path / "mixed", *[(30 + k, 60) for k in range(8)]), size="auto")
    assert data.train.shape[1:] == data.test.shape[1:] == (20, 28)
    assert sum("resized" in note for note in data.notes) == 1


@pytest.mark.parametrize("side", [8, 64])
def test_arrays_are_resized_alike(tmp_path, side):
    path = npz(tmp_path / "a.npz", images=noise(0, 12, side, side), labels=np.arange(12) % 2)
    assert load(path, size="auto").train.shape == (1, *[28] * 2)
    assert load(path).train.shape == (1, side, side)
    assert load(path, size=(5, 4)).train.shape == (1, 5, 4)


def test_images_of_a_usual_size_are_left_alone(tmp_path):
    path = npz(tmp_path / "a.npz", images=noise(0, 12, *SIZE), labels=np.arange(12) % 2)
    found, as_they_are = load(path, size="auto"), load(path)
    assert (found.train.images == as_they_are.train.images).all()
    assert found.notes == as_they_are.notes
