"""A dictionary that grows, and rows projected on it as it was when they came."""

import numpy as np
import pytest

from mercer.engine.dictionary import Dictionary
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Gaussian, Linear

ROWS = np.random.default_rng(0).normal(size=(80, 2))
KERNEL = Gaussian(1.0, amplitude=3.0)


def one_by_one(rows, most, tolerance):
    """The rows that join, and each row's squared length on those before and itself, from the definition."""
    chosen, lengths = [], []
    for t, x in enumerate(rows):
        prior, k = KERNEL(x[np.newaxis])[0, 0], KERNEL(rows[chosen], x[np.newaxis])[:, 0]
        known = float(k @ np.linalg.solve(KERNEL(rows[chosen]), k)) if chosen else 0.0
        joins = len(chosen) < most and prior - known > tolerance * prior
        chosen += [t] if joins else []
        lengths.append(prior if joins else known)
    return chosen, lengths


@pytest.mark.parametrize("most", [5, 12, 100])
@pytest.mark.parametrize("batch", [1, 7, 80])
def test_rows_join_one_after_the_other_however_they_are_batched(most, batch):
    dictionary = Dictionary.empty(KERNEL, 2)
    lengths, sizes = [], []
    for start in range(0, len(ROWS), batch):
        some = ROWS[start : start + batch]
        dictionary, features, known = dictionary.learned(some, most=most, novelty_tol=0.05)
        assert features.shape == (len(some), len(dictionary.points))
        assert not np.any(features[np.arange(features.shape[1]) >= known[:, np.newaxis]])
        lengths.extend(np.sum(features**2, axis=1))
        sizes.extend(known)
    chosen, expected = one_by_one(ROWS, most, 0.05)
    np.testing.assert_array_equal(dictionary.points, ROWS[chosen])
    np.testing.assert_allclose(lengths, expected, rtol=1e-9)
    np.testing.assert_array_equal(sizes, np.searchsorted(chosen, np.arange(80), side="right"))
    np.testing.assert_allclose(dictionary.lower @ dictionary.lower.T, KERNEL(ROWS[chosen]), rtol=1e-12, atol=1e-12)
    assert not np.any(np.triu(dictionary.lower, 1))


@pytest.mark.parametrize("seed", range(6))
def test_rows_far_from_those_that_are_close_together_are_no_rounding(seed):
    rng = np.random.default_rng(seed)
    rows = np.linspace(0.1, 3, 120)[:, np.newaxis] * rng.normal(size=(120, 1 + seed % 3))
    kernel = Gaussian([0.5, 3.0][seed % 2])
    found = []
    for batch in (1, 7, 120):
        dictionary = Dictionary.empty(kernel, rows.shape[1])
        for start in range(0, 120, batch):
            dictionary, _, _ = dictionary.learned(rows[start : start + batch], most=99, novelty_tol=0.0)
        found.append(dictionary.points)
        lengths = np.sum(dictionary.features.tile(rows) ** 2, axis=1)
        assert np.max(lengths) < 1 + 1e-6  # |v|² ≤ k(x, x)
        inverse = np.linalg.inv(dictionary.lower)
        assert np.max(np.sum(inverse**2, axis=1)) < 1.1e10
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_copies_and_what_the_kernel_cannot_tell_apart_do_not_join():
    rows = np.repeat(ROWS[:6], 4, axis=0)
    assert len(Dictionary.empty(KERNEL, 2).learned(rows, most=99, novelty_tol=0.0)[0].points) == 6
    assert len(Dictionary.empty(Linear(), 2).learned(ROWS, most=99, novelty_tol=0.0)[0].points) == 2


def test_kernels_that_overflow_or_are_none_are_refused():
    with pytest.raises(ValueError, match=r"k\(x, x\) goes up to 1e\+200: .* Scale X"):
        Dictionary.empty(Linear(), 1).learned(np.array([[1e100]]), most=9, novelty_tol=0.0)
    full = Dictionary.empty(Linear(), 1).learned(np.array([[1e70]]), most=1, novelty_tol=0.0)[0]
    with pytest.raises(NotPositiveDefiniteError, match="scale X"):
        full.learned(np.array([[1e300]]), most=1, novelty_tol=0.0)
    with pytest.raises(NotPositiveDefiniteError, match="not positive definite"):
        Dictionary.empty(_Negative(), 2).learned(ROWS, most=9, novelty_tol=0.0)


class _Negative(Gaussian):
    def diagonal(self, rows):
        return np.full(len(rows), -1.0)
