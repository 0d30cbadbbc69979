import itertools

import numpy as np
import pytest

from mercer.kernels import CompactGaussian, Gaussian, Wendland
from mercer.kernels.median_distance import median_distance
from mercer.kernels.profiles import CUTOFF
from tests.kernel_cases import Case, assert_tile, both_dtypes

by_kernel = {"ids": lambda kernel: str(Case(kernel))}

FOLLOWING = [  # what is None follows the rows
    CompactGaussian(),
    CompactGaussian(1.5, cutoff=3.0, amplitude=2.5),
    CompactGaussian([0.5, 1.0, 3.0], cutoff=4.0),
    *(Wendland(4.0, smoothness=k) for k in (0, 1, 2)),
]
NUMBERS = [
    CompactGaussian(0.5, exponent=1),
    CompactGaussian([0.5, 1.0, 3.0], cutoff=2.0, exponent=2, amplitude=2.5),
    CompactGaussian(0.1, cutoff=1.5, exponent=2.5),
    *(Wendland(1.5, smoothness=k, dimension=d) for k in (0, 1, 2) for d in (1, 9)),
    Wendland([1.0, 2.0, 3.0], dimension=4, amplitude=2.5),
]
every_kernel = pytest.mark.parametrize("kernel", FOLLOWING + NUMBERS, **by_kernel)
every_follower = pytest.mark.parametrize("kernel", FOLLOWING, **by_kernel)


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(40, 3))


def scaled_distances(kernel, rows, points):
    return np.linalg.norm((rows[:, np.newaxis] - points) / np.asarray(kernel.length_scale), axis=-1)


def number_that_follows(kernel):
    return kernel.exponent if isinstance(kernel, CompactGaussian) else kernel.dimension


# ------------------------------------------------------------------------------------------------------ the support


@every_kernel
@both_dtypes
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_values_are_exactly_zero_outside_the_support_and_positive_inside(kernel, dtype, offset, rows):
    rows = (np.concatenate([rows, 20.0 * rows]) + offset).astype(dtype)
    r = scaled_distances(kernel, rows.astype(np.float64), rows.astype(np.float64)) / kernel.support(3)
    values = kernel(rows)
    sharp = 1 + 32 * np.finfo(dtype).eps  # the rounding of a distance
    assert np.all(values[r >= sharp] == 0.0)
    assert np.all(values[r < 0.5] > 0.0)
    assert np.all(values >= 0.0)
    assert np.mean(r >= sharp) > 0.2


@pytest.mark.parametrize(("kernel", "radius"), [(CompactGaussian(0.5, cutoff=2.0), 2.0), (Wendland(2.0), 2.0)])
@both_dtypes
def test_the_edge_belongs_to_the_outside(kernel, radius, dtype):
    points = np.array([[0.0], [np.nextafter(dtype(radius), dtype(0))], [radius]], dtype=dtype)
    assert kernel(np.zeros((1, 1), dtype=dtype), points)[0, 2] == 0.0


@every_kernel
@both_dtypes
def test_a_ladder_of_distances_never_leaves_the_interval_from_zero_to_the_amplitude(kernel, dtype):
    tiny, huge = np.finfo(dtype).tiny, np.finfo(dtype).max
    inside = np.linspace(0.0, 1.2 * kernel.support(3), 5000) ** 2
    edge = kernel.support(3) ** 2 * (1 + np.arange(-50, 50) * np.finfo(dtype).eps)
    squares = np.concatenate([[0.0, tiny, huge, np.inf], np.geomspace(tiny, huge / 4, 500), inside, edge]).astype(dtype)
    values = squares.copy()
    kernel.of_squares(values, 3)
    assert np.all((values == 0) | (values >= tiny))
    assert np.all(values <= dtype(kernel.amplitude))
    assert np.all(values[squares >= dtype(kernel.support(3) ** 2) * (1 + 8 * np.finfo(dtype).eps)] == 0)
    assert values[0] == dtype(kernel.amplitude)


@pytest.mark.parametrize("cutoff", [1e-300, 1e-100, 1e-30, 1e30, 1e300])
@both_dtypes
def test_extreme_cutoffs_are_those_of_a_white_or_a_gaussian_kernel(cutoff, dtype, rows):
    rows = rows.astype(dtype)
    expected = np.eye(len(rows)) if cutoff < 1 else Gaussian()(rows)
    for exponent in (1, 2.5):
        np.testing.assert_allclose(CompactGaussian(cutoff=cutoff, exponent=exponent)(rows), expected, rtol=1e-4)


def test_a_narrow_support_costs_no_precision():
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 1000, size=(30, 3))
    rows = np.concatenate([rows, rows + 1e-2 * rng.normal(size=(30, 3))])
    for kernel in (Wendland(0.05, 0, 3), Wendland(0.05, 2, 9), CompactGaussian(10.0, cutoff=0.05, exponent=5)):
        for dtype in (np.float64, np.float32):
            narrow = rows.astype(dtype)
            assert_tile(Case(kernel), kernel(narrow), narrow, narrow, dtype)


@both_dtypes
def test_a_steep_kernel_of_many_features_is_precise(dtype):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 50))
    rows = np.concatenate([rows, rows + 10.0 ** rng.uniform(-6, -1, size=(30, 1)) * rng.normal(size=(30, 50))])
    rows = rows.astype(dtype)
    for kernel in (CompactGaussian(2.0, exponent=51), CompactGaussian(8.0, exponent=51), Wendland(20.0, 0, 50)):
        expected = Case(kernel).define(rows.astype(np.float64), rows.astype(np.float64))
        tolerance = {np.float64: 1e-10, np.float32: 1e-4}[dtype]  # of Matérn kernels between nearly equal rows
        np.testing.assert_allclose(kernel(rows), expected, rtol=0, atol=tolerance)


def test_the_default_support_is_three_sigma(rows):
    kernel = CompactGaussian(0.5)
    assert kernel.support(3) == 3 * np.sqrt(2)
    assert CompactGaussian([0.5, 1.0, 3.0]).support(3) == 3 * np.sqrt(2)
    assert CompactGaussian("median").support(3) == 3 * np.sqrt(2)
    np.testing.assert_allclose(kernel(rows), CompactGaussian(0.5, cutoff=1.5 * np.sqrt(2))(rows), rtol=1e-12)


@pytest.mark.parametrize("length_scale", [0.3, 0.7, 1e-200, 1e200])
def test_equal_length_scales_are_one_length_scale(length_scale, rows):
    one = CompactGaussian(length_scale, cutoff=3.0 * length_scale)
    three = CompactGaussian(np.full(3, length_scale), cutoff=3.0 * length_scale)
    assert three.support(3) == one.support(3)
    np.testing.assert_array_equal(three(rows * length_scale), one(rows * length_scale))


def test_a_cutoff_is_in_units_of_the_geometric_mean():
    assert CompactGaussian(0.5, cutoff=2.0).support(3) == 4.0
    np.testing.assert_allclose(CompactGaussian([0.5, 1.0, 4.0], cutoff=2.0).support(3), 2.0 / 2.0 ** (1 / 3))
    assert Wendland([0.5, 1.0, 4.0]).support(3) == 1.0


def test_a_cutoff_without_a_length_scale_says_what_to_do(rows):
    kernel = CompactGaussian("median", cutoff=2.0)
    with pytest.raises(ValueError, match="resolve"):
        kernel.support(3)
    squares = np.ones(4)
    with pytest.raises(ValueError, match="resolve"):
        kernel.of_squares(squares, 3)
    np.testing.assert_array_equal(squares, 1.0)
    assert kernel.resolve(rows).support(3) == 2.0 / median_distance(rows)


# ------------------------------------------------------------------------------------------- what follows the rows


@every_follower
def test_parameters_that_follow_the_rows_are_those_of_their_dimension(kernel, rows):
    known = kernel.for_dimension(3)
    assert number_that_follows(kernel) is None
    assert number_that_follows(known) == 3
    assert_tile(Case(kernel), kernel(rows), rows, rows)
    np.testing.assert_array_equal(kernel(rows), known(rows))
    weights = np.random.default_rng(1).normal(size=(40, 40))
    by_points, by_parameters = kernel.gradients(rows, rows, weights)
    expected = known.gradients(rows, rows, weights)
    np.testing.assert_array_equal(by_points, expected[0])
    for name, value in expected[1].items():
        np.testing.assert_array_equal(by_parameters[name], value)


@every_kernel
def test_for_dimension_is_a_copy(kernel):
    before = type(kernel)(**kernel.get_params())
    copy = kernel.for_dimension(3)
    assert copy is not kernel
    assert kernel.equals(before)
    assert copy.equals(copy.for_dimension(7))
    if number_that_follows(kernel) is not None:
        assert copy.equals(kernel)


@pytest.mark.parametrize(("n_features", "exponent"), [(1, 1), (2, 3), (3, 3), (4, 5), (5, 5), (50, 51)])
def test_the_default_exponent_is_the_dimension_or_the_next_odd_number(n_features, exponent):
    assert CompactGaussian().for_dimension(n_features).exponent == exponent
    assert Wendland().for_dimension(n_features).dimension == n_features


@every_follower
def test_resolving_finds_all_numbers(kernel, rows):
    resolved = type(kernel)("median").resolve(rows)
    assert resolved.length_scale == median_distance(rows)
    assert number_that_follows(resolved) == 3
    assert kernel.resolve(rows).equals(kernel.for_dimension(3))
    assert kernel.resolve(rows[:0]).equals(kernel.for_dimension(3))


def test_kernels_that_follow_the_rows_do_so_in_sums_and_products(rows):
    kernel = (CompactGaussian() + Wendland(4.0) * Gaussian()).resolve(rows)
    assert kernel.left.exponent == kernel.right.left.dimension == 3


@pytest.mark.parametrize("kernel", [CompactGaussian(), Wendland(smoothness=0), Wendland()], **by_kernel)
def test_a_profile_without_a_dimension_says_what_to_do(kernel):
    with pytest.raises(ValueError, match="for_dimension"):
        kernel.profile(np.dtype(np.float64))


# ------------------------------------------------------------------------------------------------------ definiteness


@pytest.mark.parametrize(("exponent", "largest"), [(0.5, 0), (1, 1), (1.4, 1), (1.5, 2), (2, 3), (3, 5), (25.5, 50)])
def test_askeys_rule(exponent, largest):
    kernel = CompactGaussian(exponent=exponent)
    assert [kernel.is_guaranteed(d) for d in range(1, 61)] == [d <= largest for d in range(1, 61)]


@pytest.mark.parametrize("dimension", [1, 2, 7])
def test_wendlands_rule(dimension):
    kernel = Wendland(dimension=dimension)
    # An even dimension and the odd one that follows have the same kernel.
    assert [kernel.is_guaranteed(d) for d in range(1, 11)] == [d <= dimension // 2 * 2 + 1 for d in range(1, 11)]


@pytest.mark.parametrize("kernel", [CompactGaussian(), Wendland()], **by_kernel)
def test_defaults_are_guaranteed(kernel):
    assert all(kernel.is_guaranteed(d) and kernel.for_dimension(d).is_guaranteed(d) for d in range(1, 101))


@pytest.mark.parametrize(
    ("below", "above"),
    [
        (Wendland(3.0, smoothness=0, dimension=1), Wendland(3.0, smoothness=0)),
        (Wendland(1.8, smoothness=1, dimension=1), Wendland(1.8, smoothness=1)),
        (CompactGaussian(3.0, cutoff=3.0, exponent=1), CompactGaussian(3.0, cutoff=3.0)),
        (CompactGaussian(3.0, cutoff=3.0, exponent=1), CompactGaussian(3.0, cutoff=3.0, exponent=3)),
    ],
    **by_kernel,
)
def test_below_the_rule_a_lattice_has_an_indefinite_matrix(below, above):
    lattice = np.array(list(itertools.product(np.arange(4.0), repeat=5)))
    assert not below.is_guaranteed(5)
    assert above.is_guaranteed(5)
    assert np.linalg.eigvalsh(below(lattice))[0] < -0.03
    assert np.linalg.eigvalsh(above(lattice))[0] > 0.03


def test_below_the_rule_rows_on_a_line_have_a_definite_matrix():
    rows = np.linspace(0, 5, 60)[:, np.newaxis] * np.ones(50)  # one dimension, in fifty
    kernel = CompactGaussian(10.0, exponent=1)
    assert not kernel.is_guaranteed(50)
    assert np.linalg.eigvalsh(kernel(rows))[0] > 0


# --------------------------------------------------------------------------------------------------- squared distances


@every_kernel
@both_dtypes
def test_values_of_squares_are_those_of_the_tile(kernel, dtype, rows):
    squares = (scaled_distances(kernel, rows, rows) ** 2).astype(dtype)
    assert kernel.of_squares(squares, 3) is None
    tolerance = {np.float64: 1e-12, np.float32: 2e-5}[dtype]
    np.testing.assert_allclose(squares, kernel(rows), rtol=0, atol=tolerance * kernel.amplitude)


@pytest.mark.parametrize("shape", [(0,), (7,), (3, 0), (2, 3, 4)])
def test_squares_may_have_any_shape(shape):
    squares = np.random.default_rng(0).uniform(0, 2, size=shape)
    expected = np.where(squares < 1, (1 - np.minimum(np.sqrt(squares), 1)) ** 2, 0.0)
    Wendland(smoothness=0).of_squares(squares, 2)
    np.testing.assert_allclose(squares, expected, rtol=1e-13)


@pytest.mark.parametrize("wrong", [np.ones(4, dtype=int), np.ones(8)[::2], np.ones((2, 3), order="F")])
def test_squares_that_cannot_be_replaced_are_refused(wrong):
    with pytest.raises(ValueError, match="squares must be a C-contiguous"):
        Wendland().of_squares(wrong, 2)
    np.testing.assert_array_equal(wrong, 1)


# ---------------------------------------------------------------------------------------------------------- profiles


@pytest.mark.parametrize("power", [*range(1, 70), 100, 127, 128, 1000])
@both_dtypes
def test_integer_powers(power, dtype):
    tile = -0.5 * np.linspace(0, 1, 300, dtype=dtype).reshape(1, -1) ** 2
    r = np.sqrt(-2.0 * tile.astype(np.float64))
    with np.errstate(under="ignore"):
        expected = (1 - r) ** power
    expected[expected <= CUTOFF[np.dtype(dtype)]] = 0.0
    kernel = Wendland(smoothness=0, dimension=2 * (power - 1) or 1)
    kernel.profile(np.dtype(dtype))(tile)
    assert tile.dtype == dtype
    # Each multiplication rounds, and so does 1 - r.
    np.testing.assert_allclose(tile, expected, rtol=0, atol=(power + 1) * np.finfo(dtype).eps)


def test_an_integer_exponent_is_the_limit_of_others(rows):
    expected = CompactGaussian(exponent=3)(rows)
    np.testing.assert_array_equal(CompactGaussian(exponent=3.0)(rows), expected)
    np.testing.assert_allclose(CompactGaussian(exponent=3 + 1e-12)(rows), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kernel", [*FOLLOWING, *NUMBERS, CompactGaussian(exponent=0.5)], **by_kernel)
@both_dtypes
def test_slopes_are_finite_and_vanish_outside_the_support(kernel, dtype):
    kernel = kernel.for_dimension(3)
    edge = -0.5 * kernel.support(3) ** 2
    tile = np.array([[0.0, 0.3 * edge, 1.001 * edge, 2 * edge, -1e30, -np.inf]], dtype=dtype)
    kernel.slope(np.dtype(dtype))(tile)
    assert tile.dtype == dtype
    assert np.all(np.isfinite(tile))
    assert (tile[0, 0] > 0) == kernel.smooth_at_zero
    assert tile[0, 1] > 0
    assert np.all(tile[0, 2:] == 0)


@pytest.mark.parametrize("kernel", [*FOLLOWING, *NUMBERS], **by_kernel)
def test_slopes_are_differences_of_profiles(kernel):
    kernel, dtype = kernel.for_dimension(3), np.dtype(np.float64)
    exponents = -0.5 * kernel.support(3) ** 2 * np.linspace(0.05, 0.95, 50).reshape(1, -1)
    step = 1e-6 * kernel.support(3) ** 2
    up, down, slope = exponents + step, exponents - step, exponents.copy()
    kernel.profile(dtype)(up)
    kernel.profile(dtype)(down)
    kernel.slope(dtype)(slope)
    np.testing.assert_allclose(slope, (up - down) / (2 * step), rtol=1e-6, atol=1e-8 * np.max(slope))


@pytest.mark.parametrize("smoothness", [0, 1, 2])
def test_only_a_smooth_wendland_function_has_no_kink(smoothness):
    assert Wendland(smoothness=smoothness).smooth_at_zero == (smoothness > 0)
    assert not CompactGaussian().smooth_at_zero


def test_a_small_amplitude_brings_no_subnormal_values():
    rows = np.linspace(0.0, 10.0, 200, dtype=np.float32)[:, np.newaxis]
    for kernel in (CompactGaussian(exponent=5, amplitude=1e-25), Wendland(9.0, dimension=9, amplitude=1e-25)):
        values = kernel(rows)
        assert np.all((values == 0) | (values >= np.finfo(np.float32).tiny))


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "kernel", [Wendland(), Wendland("auto", 0), CompactGaussian(), CompactGaussian("auto")], ids=str
)
def test_with_radius(kernel):
    chosen = kernel.with_radius(7.0)
    inside, outside = chosen([[0.0, 0.0]], [[6.5, 0.0], [7.0 + 1e-9, 0.0]])[0]
    assert inside > 0
    assert outside == 0
