"""Each compiled function against its NumPy twin."""

import numpy as np
import pytest

from mercer.kernels import Gaussian, Matern, elementwise
from mercer.kernels.profiles import CUTOFF, as_power, exp, power, recompute_pairs, representable, scale_rows

both_dtypes = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def exponents(dtype, lowest):
    """Exponents from zero to far below the cutoff, dense near zero."""
    small = -np.geomspace(1e-12, 1.0, 200)
    return np.concatenate([[0.0], small, np.linspace(-1.0, lowest, 4000)]).astype(dtype).reshape(1, -1)


def flushed_exp(x, dtype):
    """exp in full precision, zero below the cutoff."""
    with np.errstate(under="ignore"):
        values = np.exp(x.astype(np.float64))
    return np.where(values > CUTOFF[np.dtype(dtype)], values, 0.0)


def fill(kernel, tile):
    kernel.profile(tile.dtype)(tile)


def ulps(actual, expected):
    return np.abs(actual.astype(np.float64) - expected) / np.spacing(np.abs(expected).astype(actual.dtype))


@both_dtypes
def test_the_exponential_is_within_two_units_in_the_last_place(dtype):
    tile = exponents(dtype, lowest=-400.0 if dtype == np.float64 else -50.0)
    expected = flushed_exp(tile, dtype)
    fill(Gaussian(), tile)
    assert tile.dtype == dtype
    assert np.max(ulps(tile, expected)) <= 2.5  # two, and half a unit of rounding of the expected values


@both_dtypes
def test_values_below_the_cutoff_are_exactly_zero(dtype):
    edge = np.log(CUTOFF[np.dtype(dtype)])
    tile = np.array([[edge * 0.999, edge * 1.001, 10 * edge, -np.finfo(dtype).max, -np.inf]], dtype=dtype)
    fill(Gaussian(), tile)
    assert tile[0, 0] >= CUTOFF[np.dtype(dtype)]
    np.testing.assert_array_equal(tile[0, 1:], 0)


@both_dtypes
def test_a_tiny_amplitude_raises_the_cutoff(dtype):
    tile = np.array([[-1.0, -2.9, -3.1, -30.0]], dtype=dtype)
    amplitude = 2 * np.finfo(dtype).tiny * np.exp(3.0)  # times exp(-3) it is just normal
    fill(Gaussian(amplitude=amplitude), tile)
    np.testing.assert_allclose(tile / dtype(amplitude), [[np.exp(-1.0), np.exp(-2.9), 0.0, 0.0]], rtol=1e-6)


@both_dtypes
def test_a_positive_exponent_is_rounding_and_counts_as_zero(dtype):
    tile = np.array([[1e-6, 1e-3]], dtype=dtype)
    fill(Gaussian(amplitude=2.0), tile)
    np.testing.assert_array_equal(tile, dtype(2))


def matern12(r, decay):
    return decay(r)


def matern32(r, decay):
    s = np.sqrt(3) * r
    return (1 + s) * decay(s)


def matern52(r, decay):
    s = np.sqrt(5) * r
    return (1 + s + s**2 / 3) * decay(s)


COMPILED = {matern12: Matern(nu=0.5, amplitude=2.0), matern32: Matern(amplitude=2.0), matern52: Matern(1.0, 2.5, 2.0)}


@pytest.mark.parametrize("formula", COMPILED)
@both_dtypes
def test_matern_profiles(formula, dtype):
    lowest = -5e4 if dtype == np.float64 else -600.0
    tile = exponents(dtype, lowest)
    expected = 2 * formula(np.sqrt(-2.0 * tile.astype(np.float64)), lambda s: flushed_exp(-s, dtype))
    fill(COMPILED[formula], tile)
    kept = expected > 2 * CUTOFF[np.dtype(dtype)]
    # s is known to eps·s, and s < 360 (42) above the cutoff.
    largest = 360 if dtype == np.float64 else 42
    np.testing.assert_allclose(tile[kept], expected[kept], rtol=4 * largest * np.finfo(dtype).eps)
    assert np.all(tile[~kept] <= 1e4 * CUTOFF[np.dtype(dtype)])


@pytest.mark.parametrize("formula", COMPILED)
@pytest.mark.parametrize(
    ("dtype", "far"), [(np.float64, -1e300), (np.float64, -np.inf), (np.float32, -3e38), (np.float32, -np.inf)]
)
def test_matern_profiles_vanish_at_infinity(formula, dtype, far):
    tile = np.array([[far, np.finfo(dtype).min]], dtype=dtype)
    fill(COMPILED[formula], tile)
    np.testing.assert_array_equal(tile, 0)


@pytest.mark.parametrize("formula", COMPILED)
def test_matern_profiles_at_zero_are_the_amplitude(formula):
    tile = np.zeros((2, 2))
    fill(COMPILED[formula], tile)
    np.testing.assert_array_equal(tile, 2.0)


@both_dtypes
def test_exponential_over_distance(dtype):
    tile = exponents(dtype, lowest=-1e3 if dtype == np.float64 else -600.0)
    r = np.sqrt(-2.0 * tile[:, 1:].astype(np.float64))
    expected = 2 * flushed_exp(-r, dtype) / r
    Matern(nu=0.5, amplitude=2.0).slope(tile.dtype)(tile)
    assert tile[0, 0] == 0  # the derivative is not defined at r = 0: its subgradient zero is taken
    np.testing.assert_allclose(tile[:, 1:], expected, rtol=200 * np.finfo(dtype).eps, atol=1e-19)


@pytest.mark.parametrize("kernel", [Gaussian(), *COMPILED.values()], ids=str)
def test_profiles_accept_empty_tiles(kernel):
    for shape in [(0, 3), (3, 0)]:
        fill(kernel, np.empty(shape))
        kernel.slope(np.dtype(np.float64))(np.empty(shape))


@elementwise
def plain(E, shape, exponent):
    return power(1 - E / shape, exponent, 1.0)


@pytest.mark.parametrize("exponent", [3, 2.5])
@both_dtypes
def test_a_formula_becomes_a_loop(exponent, dtype):
    tile = -np.linspace(0, 9, 50, dtype=dtype).reshape(5, 10)
    expected = 2 * (1 - tile.astype(np.float64) / 4) ** exponent
    assert plain.formula(-1.0, 4.0, exponent) == pytest.approx(1.25**exponent)
    plain.profile(np.dtype(dtype), 2.0, (4.0, as_power(exponent)))(tile)
    assert tile.dtype == dtype
    np.testing.assert_allclose(tile, expected, rtol=8 * np.finfo(dtype).eps)


@both_dtypes
def test_numbers_are_given_as_they_are_and_extreme_ones_as_far_as_the_dtype_goes(dtype):
    for number in (-2.5, 0.0, 3.0):
        assert representable(number, np.dtype(dtype)) == number
    for number in (1e-300, 1e300, -1e-300, -1e300):
        moved = dtype(representable(number, np.dtype(dtype)))
        assert np.sign(moved) == np.sign(number)
        assert np.finfo(dtype).tiny <= moved * moved < np.inf


@elementwise
def tiny(E, scale):
    return scale * E


@both_dtypes
def test_values_that_would_be_subnormal_become_zero_whatever_their_sign(dtype):
    cutoff = CUTOFF[np.dtype(dtype)]
    tile = np.array([[-2.0, -0.5, 0.5, 2.0, np.nan]], dtype=dtype)
    tiny.profile(np.dtype(dtype), 3.0, (cutoff,))(tile)
    np.testing.assert_allclose(tile, [[-6 * cutoff, 0.0, 0.0, 6 * cutoff, 0.0]], rtol=1e-6)


@both_dtypes
def test_scale_rows(dtype):
    rng = np.random.default_rng(0)
    rows, shift, inverse = (rng.normal(size=size).astype(dtype) for size in [(6, 3), 3, 3])
    out = np.full((6, 5), np.nan, dtype=dtype)
    largest = scale_rows(rows, shift, inverse, out)
    scaled = (rows.astype(np.float64) - shift) * inverse
    half_norms = 0.5 * np.sum(scaled**2, axis=1)
    expected = np.column_stack([scaled, -half_norms, np.ones(6)])
    np.testing.assert_allclose(out, expected, atol=8 * np.finfo(dtype).eps * np.max(np.abs(expected)))
    np.testing.assert_allclose(largest, np.max(half_norms), rtol=8 * np.finfo(dtype).eps)


INVERSE_SCALE = np.array([0.5, 1.0, 2.0])


def norms_of(rows):
    """-|x̃|²/2 for a shift of zero."""
    return -0.5 * np.sum((rows * INVERSE_SCALE) ** 2, axis=1)


def from_differences(rows, points):
    differences = (rows[:, np.newaxis] - points[np.newaxis]) * INVERSE_SCALE
    return -0.5 * np.sum(differences**2, axis=-1)


def recompute(tile, rows, points, norms=None, *, far=32.0, negligible=-38.0, rounding=1e-15, kink=0.0):
    limits = far, negligible, rounding, kink, -np.inf
    norms = norms_of(rows) if norms is None else norms
    recompute_pairs(tile, norms.astype(tile.dtype), rows, points, INVERSE_SCALE, limits)


@pytest.fixture
def near_and_far():
    """Points, and rows close to them; rows and points 1 and 3 are far from the origin, and from each other."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4, 3))
    points[1] += 100.0
    points[3] -= 100.0
    return points + 0.1 * rng.normal(size=(4, 3)), points


@both_dtypes
def test_pairs_of_far_rows_are_recomputed_where_their_value_counts(near_and_far, dtype):
    rows, points = (table.astype(dtype) for table in near_and_far)
    rows64, points64 = rows.astype(np.float64), points.astype(np.float64)
    exact = from_differences(rows64, points64)
    wrong = (exact - 1.0).astype(dtype)
    tile = wrong.copy()
    recompute(tile, rows, points64)
    again = np.zeros((4, 4), dtype=bool)
    again[1, 1] = again[3, 3] = True  # a far row and the point beside it; all other points are at a negligible value
    np.testing.assert_allclose(tile[again], exact[again], rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(tile[~again], wrong[~again])


def test_an_exponent_that_may_be_off_by_its_rounding_is_not_taken_for_negligible(near_and_far):
    rows, points = near_and_far
    exact = from_differences(rows, points)
    tile = np.full((4, 4), -100.0)
    recompute(tile, rows, points, rounding=0.1)  # |x̃|²/2 is 20 000 and more in rows 1 and 3
    np.testing.assert_allclose(tile[[1, 3]], exact[[1, 3]], rtol=1e-14)
    np.testing.assert_array_equal(tile[[0, 2]], -100.0)


@pytest.mark.parametrize("norm", [np.nan, -np.inf])
def test_a_row_whose_norm_overflows_is_recomputed_with_all_points(near_and_far, norm):
    rows, points = near_and_far
    norms = norms_of(rows)
    norms[0] = norm
    tile = np.full((4, 4), -1e4)
    recompute(tile, rows, points, norms)
    np.testing.assert_allclose(tile[0], from_differences(rows, points)[0], rtol=1e-14)
    np.testing.assert_array_equal(tile[2], -1e4)


def test_an_exponent_that_is_not_a_number_is_recomputed(near_and_far):
    rows, points = near_and_far
    tile = np.full((4, 4), np.nan)
    recompute(tile, rows, points)
    np.testing.assert_allclose(tile[[1, 3]], from_differences(rows, points)[[1, 3]], rtol=1e-14)


def test_a_kink_asks_for_near_pairs_of_every_row_and_no_others():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(4, 3))
    rows = np.concatenate([points[:2] + 1e-7, points[2:] + 3.0])
    exact = from_differences(rows, points)
    wrong = exact + 1e-9
    tile = wrong.copy()
    recompute(tile, rows, points, far=1e6, kink=1e-8)
    near = np.eye(4, dtype=bool)
    near[2:] = False
    np.testing.assert_allclose(tile[near], exact[near], rtol=1e-12)
    np.testing.assert_array_equal(tile[~near], wrong[~near])
    untouched = wrong.copy()
    recompute(untouched, rows, points, far=1e6, kink=0.0)
    np.testing.assert_array_equal(untouched, wrong)


def test_formulas_of_one_name_and_line_are_told_apart():
    first, second = (elementwise(f) for f in (lambda E: 1.0 * exp(E), lambda E: 2.0 * exp(E)))
    tiles = [np.zeros((1, 1)), np.zeros((1, 1))]
    for formula, tile in zip((first, second), tiles, strict=True):
        formula.profile(np.dtype(np.float64), 1.0, ())(tile)
    assert [tile.item() for tile in tiles] == [1.0, 2.0]


def test_a_formula_must_not_depend_on_what_surrounds_it():
    def make(factor):
        return lambda E: factor * E

    def with_default(E, factor=2.0):
        return factor * E

    for formula in (make(2.0), with_default):
        with pytest.raises(TypeError, match="must take its numbers as arguments"):
            elementwise(formula)


FACTOR = 1.0


def scaled(E):
    return FACTOR * exp(E)


def by_helper(E):
    return helper(E)


def helper(E):
    return 3.0 * exp(E)


def test_numbers_of_a_module_are_part_of_the_formula(monkeypatch):
    values, names = [], []
    for factor in (1.0, 2.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        formula, tile = elementwise(scaled), np.zeros((1, 1))
        formula.profile(np.dtype(np.float64), 1.0, ())(tile)
        values.append(tile.item())
        names.append(formula._flushing.py_func.__name__)
    assert values == [1.0, 2.0]
    assert names[0] != names[1]


def test_what_comes_from_elsewhere_is_compiled_in_every_process():
    assert elementwise(scaled)._flushing.py_func.is_kept
    assert not elementwise(by_helper)._flushing.py_func.is_kept
