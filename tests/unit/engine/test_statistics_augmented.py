import numpy as np
import pytest
from scipy.linalg import cholesky

from mercer.engine import Features, Scratch, Tile
from mercer.engine.statistics import NormalPass
from mercer.kernels import Gaussian, Linear, Polynomial

M = 6
WIDTHS = {0: 8, 1: 8, 2: 16, 9: 16, 10: 24}  # M features, p targets and the constant, up to a multiple of eight


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(20, 3))


@pytest.fixture
def points():
    return np.random.default_rng(1).normal(size=(M, 3))


@pytest.mark.parametrize(("p", "width"), WIDTHS.items())
@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_tile_holds_features_targets_the_constant_and_zeros(rows, points, p, width, whitened, dtype):
    lower = np.asfortranarray(cholesky(Gaussian()(points), lower=True)) if whitened else None
    features = Features(Gaussian(), points, lower, dtype=dtype)
    augmented = NormalPass(features, p)
    assert augmented.width == width
    targets, scratch = np.random.default_rng(2).normal(size=(20, p)), Scratch()
    scratch.array("augmented", (20, width))[...] = np.nan
    tile = augmented.values(Tile(rows, targets, scratch=scratch))
    assert np.shares_memory(tile, scratch.array("augmented", (20, width)))
    # The padding may change how the kernel centres its points: a few roundings of its values, which whitening
    # magnifies by |L⁻¹|.
    magnified = 1.0 if lower is None else np.linalg.norm(np.linalg.inv(lower), 2)
    rounding = 32 * np.finfo(dtype).eps * magnified
    np.testing.assert_allclose(tile[:, :M], features.tile(rows), rtol=0, atol=rounding)
    np.testing.assert_array_equal(tile[:, M : M + p], targets)
    np.testing.assert_array_equal(tile[:, M + p], 1.0)
    np.testing.assert_array_equal(tile[:, M + p + 1 :], 0.0)


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(2)])
def test_the_padding_does_not_disturb_kernels_without_a_shift(kernel, rows, points):
    tile = NormalPass(Features(kernel, points), 1).values(Tile(rows, np.zeros((20, 1))))
    np.testing.assert_allclose(tile[:, :M], kernel(rows, points), rtol=1e-12, atol=1e-13)


def test_a_used_buffer_leaves_nothing_behind(rows, points):
    augmented = NormalPass(Features(Linear(), points), 2)
    piece = Tile(rows, np.ones((20, 2)))
    buffer = augmented.values(piece)
    buffer *= 7.0  # as the caller does, who divides rows by their standard deviations
    again = augmented.values(piece)
    fresh = augmented.values(Tile(rows, np.ones((20, 2))))
    np.testing.assert_array_equal(again, fresh)


def test_the_features_given_keep_their_width(points):
    features = Features(Gaussian(), points)
    NormalPass(features, 3).prepare()
    assert features.n_features == M


def test_sums_have_both_triangles_and_no_padding(points):
    augmented = NormalPass(Features(Gaussian(), points), 1)
    total = np.arange(64.0).reshape(8, 8)
    sums = augmented.sums(total)
    assert sums.shape == (8, 8)
    np.testing.assert_array_equal(sums, np.triu(np.arange(64.0).reshape(8, 8)) + np.triu(total, 1).T)
    wider = NormalPass(Features(Gaussian(), points), 2).sums(np.ones((16, 16)))
    assert wider.shape == (9, 9)
    assert wider.flags.c_contiguous


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_sums_that_overflow_are_refused(points, value):
    augmented = NormalPass(Features(Gaussian(), points), 2)
    total = np.ones((16, 16))
    total[15, 15] = value
    augmented.sums(total)  # the padding is nobody's
    total[2, 7] = value
    with pytest.raises(ValueError, match=r"the sums over the rows overflow.*Scale X or y"):
        augmented.sums(total)
