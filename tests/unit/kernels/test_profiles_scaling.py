"""Scaled rows and points, and their norms."""

import numpy as np
import pytest

from mercer.kernels.profiles import scale_points, scale_rows

N = 20


def scaled(order, gap, d, seed):
    """Folded points and rows, from arrays that lie in memory in some order, that far apart."""
    points = np.random.default_rng(seed).normal(size=(N, d))
    shapes = {"points": (N, d), "shift": (d,), "scale": (d,), "scaled": (N, d), "folded": (N, d + 2)}
    memory, start, arrays = np.ones(5000), 0, {}
    for name in order:
        size = int(np.prod(shapes[name]))
        arrays[name] = memory[start : start + size].reshape(shapes[name])
        start += size + gap
    arrays["points"][:], arrays["shift"][:], arrays["scale"][:] = points, np.median(points, axis=0), 0.37
    folded = arrays["folded"]
    scale_points(arrays["points"], np.arange(N), arrays["shift"], arrays["scale"], arrays["scaled"], folded)
    of_points = folded.copy()
    scale_rows(arrays["points"], arrays["shift"], arrays["scale"], folded)
    return of_points, folded


@pytest.mark.parametrize("d", [1, 3, 4, 5, 8, 17])
def test_bits_do_not_depend_on_where_arrays_lie(d):
    order = ["points", "shift", "scale", "scaled", "folded"]
    for seed in range(5):
        expected = scaled(order, 300, d, seed)
        for gap in range(4):
            for first in range(len(order)):
                np.testing.assert_array_equal(scaled(order[first:] + order[:first], gap, d, seed), expected)
