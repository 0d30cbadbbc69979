"""Scaled rows, and their norms."""

import numpy as np
import pytest

from mercer.kernels.profiles import scale_rows

N = 20


def scaled(order, gap, d, seed):
    """Folded rows, from arrays that lie in memory in some order, that far apart."""
    rows = np.random.default_rng(seed).normal(size=(N, d))
    shapes = {"rows": (N, d), "shift": (d,), "scale": (d,), "folded": (N, d + 2)}
    memory, start, arrays = np.ones(5000), 0, {}
    for name in order:
        size = int(np.prod(shapes[name]))
        arrays[name] = memory[start : start + size].reshape(shapes[name])
        start += size + gap
    arrays["rows"][:], arrays["shift"][:], arrays["scale"][:] = rows, np.median(rows, axis=0), 0.37
    scale_rows(arrays["rows"], arrays["shift"], arrays["scale"], arrays["folded"])
    return arrays["folded"]


@pytest.mark.parametrize("d", [1, 3, 4, 5, 8, 17])
def test_bits_do_not_depend_on_where_arrays_lie(d):
    order = ["rows", "shift", "scale", "folded"]
    for seed in range(5):
        expected = scaled(order, 300, d, seed)
        for gap in range(4):
            for first in range(len(order)):
                np.testing.assert_array_equal(scaled(order[first:] + order[:first], gap, d, seed), expected)
