"""Test strokes: reproducibility, difficulty, and agreement of images and poses."""

import numpy as np
import pytest
from scipy.interpolate import CubicHermiteSpline
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from minicaps.data import baselines, load, strokes
from minicaps.data.dataset import Split

DIGITS = np.arange(10)
NEUTRAL = {
    "rotation": 0,
    "scale": 1,
    "shear": 0,
    "translation_x": 0,
    "translation_y": 0,
    "thickness": 2,
}


def draw(labels=DIGITS, **pose):
    pose = NEUTRAL | pose
    poses = np.stack(np.broadcast_arrays(*(pose[name] for name in strokes.POSE_NAMES)), axis=-1)
    return strokes.draw(labels, np.broadcast_to(poses, (len(labels), len(pose))))[:, 0]


def moments(images):
    """Compute the mean (x, y) and the variances xx, xy, yy of the ink of each image."""
    y, x = np.indices(images.shape[1:])
    ink = images / images.sum(axis=(1, 2), keepdims=True)
    mean_x, mean_y = (ink * x).sum(axis=(1, 2)), (ink * y).sum(axis=(1, 2))
    dx, dy = x - mean_x[:, None, None], y - mean_y[:, None, None]
    return (
        mean_x,
        mean_y,
        *((ink * product).sum(axis=(1, 2)) for product in (dx * dx, dx * dy, dy * dy)),
    )


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# ---- the samples


@pytest.fixture(scope="module")
def sample():
    return strokes.strokes(2500, seed=3)


def test_shapes_types_and_ranges(sample):
    images, labels, poses = sample
    assert images.shape == (2500, 1, 28, 28)
    assert images.dtype == np.float32
    assert labels.dtype == np.int64
    assert poses.shape == (2500, len(strokes.POSE_NAMES))
    assert images.min() == 0
    assert images.max() == 1
    lowest, highest = np.array(list(strokes.POSE_RANGES.values())).T
    assert (lowest <= poses).all()
    assert (poses <= highest).all()
    assert ((poses.max(axis=0) - poses.min(axis=0)) / (highest - lowest) > 0.98).all()


def test_digits_are_balanced_and_mixed(sample):
    labels = sample[1]
    assert (np.bincount(labels[:1000]) == 100).all()
    assert (np.bincount(labels[:200], minlength=10) > 5).all()
    assert (labels[:1000] != labels[1000:2000]).any()


def test_digits_stay_on_the_picture(sample):
    images = sample[0][:, 0]
    border = np.concatenate(
        [images[:, [0, -1]].reshape(2500, -1), images[:, :, [0, -1]].reshape(2500, -1)], axis=1
    )
    assert border.sum() < 0.005 * images.sum()


def test_same_seed_same_bits_other_seed_or_part_other_pictures():
    first = strokes.strokes(300, seed=5)
    assert same(first, strokes.strokes(300, seed=5))
    for other in (strokes.strokes(300, seed=6), strokes.strokes(300, seed=5, part="test")):
        assert not (first[0] == other[0]).all(axis=(1, 2, 3)).any()


@pytest.mark.parametrize("n", [1, 37, 1000, 1001])
def test_a_sample_does_not_depend_on_how_many_are_drawn(sample, n):
    assert same(strokes.strokes(n, seed=3), [part[:n] for part in sample])


def test_senseless_arguments():
    with pytest.raises(ValueError, match="at least 1 sample, got n=0"):
        strokes.strokes(0)
    with pytest.raises(ValueError, match="train, test, got 'validation'"):
        strokes.strokes(1, part="validation")


# ---- the pose is honest


def test_without_wobble_the_pose_says_all(monkeypatch):
    monkeypatch.setattr(strokes, "WOBBLE", 0)
    images, labels, poses = strokes.strokes(200, seed=1)
    np.testing.assert_array_equal(strokes.draw(labels, poses), images)


@pytest.mark.parametrize(("x", "y"), [(2, 0), (0, -3), (1.3, 2.6), (-0.45, 0.25)])
def test_translation_moves_the_centre_of_mass(x, y):
    before, after = moments(draw()), moments(draw(translation_x=x, translation_y=y))
    np.testing.assert_allclose(after[0] - before[0], x, atol=0.06)
    np.testing.assert_allclose(after[1] - before[1], y, atol=0.06)


def test_whole_pixel_translation_moves_every_pixel():
    moved = draw(translation_x=2, translation_y=-1)
    np.testing.assert_allclose(moved, np.roll(draw(), (-1, 2), axis=(1, 2)), atol=1e-5)


@pytest.mark.parametrize("angle", [-25, -7, 10, 25])
def test_rotation_turns_the_long_axis_clockwise(angle):
    _, _, xx, xy, yy = moments(draw(DIGITS[:1], rotation=angle))
    turned = np.degrees(0.5 * np.arctan2(2 * xy, xx - yy))  # of the long axis, from x toward y
    turned = (turned - 90 + 180) % 180  # it is 90 for an upright 0
    np.testing.assert_allclose((turned + 90) % 180 - 90, angle, atol=0.5)


def test_a_quarter_turn_turns_the_picture():
    np.testing.assert_allclose(draw(rotation=90), np.rot90(draw(), -1, axes=(1, 2)), atol=1e-5)


@pytest.mark.parametrize("shear", [-0.3, 0.2])
def test_shear_leans(shear):
    stem = draw([1], shear=shear)[0, 12:22]  # below the flag of the 1
    x = (stem * np.arange(28)).sum(axis=1) / stem.sum(axis=1)
    np.testing.assert_allclose(np.polyfit(np.arange(len(x)), x, 1)[0], shear, atol=0.01)


@pytest.mark.parametrize("scale", [0.7, 1.05])
def test_scale_scales_lengths_but_not_the_pen(scale):
    thin = {"thickness": 1.1}
    before, after = draw(**thin), draw(scale=scale, **thin)
    lengths = np.sqrt(np.stack(moments(after)[2::2]) / np.stack(moments(before)[2::2]))
    np.testing.assert_allclose(lengths[1], scale, rtol=0.05)
    ink = after.sum(axis=(1, 2)) / before.sum(axis=(1, 2))
    np.testing.assert_allclose(ink, scale, rtol=0.06)


def test_a_thicker_pen_leaves_more_ink():
    one, two, three = (draw(thickness=t).sum(axis=(1, 2)) for t in (1.1, 2.05, 3.0))
    assert (one < two).all()
    assert (two < three).all()
    length = 18 + np.hypot(0.37, 0.5) * 9  # the stem and the flag of the 1
    np.testing.assert_allclose((three - one)[1], 1.9 * length, rtol=0.1)


def test_poses_belong_to_their_pictures(sample):
    images, labels, poses = sample
    pose = dict(zip(strokes.POSE_NAMES, poses.T, strict=True))
    for digit in DIGITS:
        which = labels == digit
        x, y, *_ = moments(images[which, 0])
        assert np.corrcoef(x, pose["translation_x"][which])[0, 1] > 0.85
        assert np.corrcoef(y, pose["translation_y"][which])[0, 1] > 0.85
        ink = images[which].sum(axis=(1, 2, 3)) / pose["scale"][which]
        assert np.corrcoef(ink, pose["thickness"][which])[0, 1] > 0.9


def test_wobble_moves_one_point_by_skeleton_units():
    wobble = np.zeros((1, strokes.POINTS, 2))
    wobble[0, :, 0] = 1 / 9  # move all points one pixel to the right
    pose = [list(NEUTRAL.values())]
    moved = strokes.draw([4], pose, wobble)
    np.testing.assert_allclose(moved, np.roll(strokes.draw([4], pose), 1, axis=-1), atol=1e-5)
    wobble[0, 1:] = 0  # move only the tip of the 4
    bent = strokes.draw([4], pose, wobble)
    assert (bent[0, 0, 20:] == draw()[4, 20:]).all()
    assert (bent != strokes.draw([4], pose)).any()


@pytest.mark.parametrize("digit", DIGITS)
def test_ink_is_the_distance_to_the_spline(digit):
    """Compare with a dense evaluation of the same spline by SciPy in double precision."""
    curve = []
    for stroke in strokes.SKELETONS[digit]:
        points = np.array(stroke)
        closed = stroke[0] == stroke[-1]
        before, after = (points[-2], points[1]) if closed else (points[0], points[-1])
        around = np.stack([before, *points, after])
        spline = CubicHermiteSpline(np.arange(len(points)), points, (around[2:] - around[:-2]) / 2)
        for k in range(len(points) - 1):
            if stroke[k] != stroke[k + 1]:  # otherwise a corner
                curve.append(spline(np.linspace(k, k + 1, 200)))
    y, x = np.indices((28, 28)).reshape(2, -1)
    distance = cdist(np.stack([x, y], axis=1), 13.5 + 9 * np.concatenate(curve)).min(axis=1)
    expected = np.clip(NEUTRAL["thickness"] / 2 + 0.5 - distance, 0, 1).reshape(28, 28)
    np.testing.assert_allclose(draw()[digit], expected, atol=0.06)


# ---- how hard it is


@pytest.fixture(scope="module")
def splits():
    data = load("strokes", limit=5000)
    return data.train, data.test


@pytest.mark.slow
def test_classifiers_of_pixels_do_not_get_far(splits):
    assert 0.5 < baselines.linear(*splits)["accuracy"] <= 0.85
    assert 0.8 < baselines.nearest_neighbour(*splits) <= 0.93


@pytest.mark.slow
def test_baselines_are_as_good_as_those_of_scikit_learn(splits):
    train, test = splits[0].take(slice(2000)), splits[1].take(slice(1000))
    x, asked = (part.images.reshape(len(part), -1) for part in (train, test))
    logistic = LogisticRegression(C=1 / (2000 * 1e-2), max_iter=500).fit(x, train.labels)
    linear = baselines.linear(train, test, seconds=60)["accuracy"]
    assert abs(linear - logistic.score(asked, test.labels)) < 0.02
    nearest = KNeighborsClassifier(1).fit(x, train.labels)
    assert abs(baselines.nearest_neighbour(train, test) - nearest.score(asked, test.labels)) < 0.002


def test_baselines_learn_what_is_easy():
    labels = np.arange(60) % 3
    images = np.zeros((60, 1, 2, 2), dtype=np.float32)
    images[np.arange(60), 0, labels // 2, labels % 2] = 1
    split = Split(images, labels)
    assert baselines.linear(split, split)["accuracy"] == 1
    assert baselines.nearest_neighbour(split, split) == 1
