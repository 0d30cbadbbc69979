import numpy as np
import pytest

from mercer.datasets import make_bumps, make_clusters, make_waves


@pytest.mark.parametrize("make", [make_waves, make_bumps])
def test_the_same_seed_gives_the_same_data(make):
    first, second, other = make(50, random_state=1), make(50, random_state=1), make(50, random_state=2)
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])
    assert not np.array_equal(first[1], other[1])


def test_waves_have_the_variance_they_claim():
    X, y = make_waves(20_000, n_features=3, noise=0.0, random_state=0)
    assert X.shape == (20_000, 3)
    # 32 waves of random phase on a cube a few wavelengths wide: the variance is 1 up to their accidental correlations.
    assert 0.5 < np.var(y) < 2.0


def test_noise_is_added_with_its_standard_deviation():
    _, clean = make_waves(20_000, noise=0.0, random_state=3)
    _, noisy = make_waves(20_000, noise=0.5, random_state=3)
    np.testing.assert_allclose(np.std(noisy - clean), 0.5, rtol=0.03)


def test_bumps_leave_their_gap():
    X, _ = make_bumps(2000, random_state=0)
    assert not np.any((X > -1) & (X < 2.5))
    assert X.min() < -5
    assert X.max() > 5


def test_clusters_are_of_very_different_size_and_repeat_rows():
    X, y = make_clusters(4000, n_features=3, random_state=0)
    assert X.shape == (4000, 3)
    assert np.all(np.isfinite(y))
    assert len(np.unique(X, axis=0)) < 3000
