"""What every kernel promises, checked on every public kernel class against its definition.

A new class fails ``test_every_public_kernel_has_an_example`` until it has an entry in ``EXAMPLES``; then all of this
runs on it.
"""

import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import laplacian_kernel

from mercer import kernels
from mercer.kernels import Function, Gaussian, Kernel, Linear, Matern, Polynomial, Precomputed, Product, Sum

D = 3

# Largest error relative to sqrt(k(x,x) k(z,z)). The folded product errs by eps·|x̃|² in the exponent, and |x̃|² stays
# below 100 on these rows; polynomials multiply the rounding by their degree.
TOLERANCE = {np.float64: 1e-12, np.float32: 2e-5}


# ------------------------------------------------------------------------------------ definitions, from differences


def distance(rows, points, length_scale):
    """|x - z|/ℓ, without overflow of squares."""
    differences = np.abs((rows[:, np.newaxis, :] - points[np.newaxis, :, :]) / np.asarray(length_scale))
    largest = np.max(differences, axis=-1, keepdims=True)
    largest[largest == 0] = 1.0
    return largest[..., 0] * np.sqrt(np.sum((differences / largest) ** 2, axis=-1))


def gaussian(kernel):
    def define(rows, points):
        with np.errstate(over="ignore", under="ignore"):
            return kernel.amplitude * np.exp(-0.5 * distance(rows, points, kernel.length_scale) ** 2)

    return define


def matern(kernel):
    def define(rows, points):
        s = np.sqrt(2 * kernel.nu) * distance(rows, points, kernel.length_scale)
        with np.errstate(under="ignore"):
            decay = np.exp(-s)
            terms = {0.5: decay, 1.5: decay + s * decay, 2.5: decay + s * decay + s * (s * decay) / 3}
        return kernel.amplitude * terms[kernel.nu]

    return define


def linear(kernel):
    return lambda rows, points: kernel.amplitude * (rows @ points.T)


def polynomial(kernel):
    return lambda rows, points: kernel.amplitude * (kernel.scale * (rows @ points.T) + kernel.offset) ** kernel.degree


def laplacian(kernel):
    def define(rows, points):
        with np.errstate(under="ignore"):
            return kernel.amplitude * np.exp(
                -np.sum(np.abs(rows[:, np.newaxis] - points[np.newaxis]), axis=-1) / rows.shape[1]
            )

    return define


def chosen_columns(_kernel):
    return lambda rows, points: rows[:, points[:, 0].astype(int)]


def added(kernel):
    left, right = DEFINITIONS[type(kernel.left)](kernel.left), DEFINITIONS[type(kernel.right)](kernel.right)
    return lambda rows, points: left(rows, points) + right(rows, points)


def multiplied(kernel):
    left, right = DEFINITIONS[type(kernel.left)](kernel.left), DEFINITIONS[type(kernel.right)](kernel.right)
    return lambda rows, points: left(rows, points) * right(rows, points)


DEFINITIONS: dict[type[Kernel], Callable[[Any], Callable[..., Any]]] = {
    Function: laplacian,
    Gaussian: gaussian,
    Linear: linear,
    Matern: matern,
    Polynomial: polynomial,
    Precomputed: chosen_columns,
    Product: multiplied,
    Sum: added,
}

EXAMPLES: dict[type[Kernel], list[Kernel]] = {
    Function: [Function(laplacian_kernel), Function(laplacian_kernel, amplitude=2.5)],
    Gaussian: [Gaussian(), Gaussian(0.7, amplitude=2.5), Gaussian(np.array([0.5, 1.0, 3.0]))],
    Linear: [Linear(), Linear(amplitude=2.5)],
    Matern: [
        *(Matern(nu=nu) for nu in (0.5, 1.5, 2.5)),
        *(Matern(np.array([0.5, 1.0, 3.0]), nu=nu, amplitude=2.5) for nu in (0.5, 1.5, 2.5)),
    ],
    Polynomial: [Polynomial(), Polynomial(degree=4, scale=0.3, offset=0.0, amplitude=2.5), Polynomial(degree=1)],
    Precomputed: [Precomputed()],
    Product: [
        Gaussian(2.0) * Linear(0.5),
        Matern(2.0, nu=2.5) * (Gaussian(np.array([0.5, 1.0, 3.0])) + Polynomial(2)),
    ],
    Sum: [Gaussian(2.0) + Linear(0.5), Matern(nu=0.5) * Gaussian(3.0) + Matern(0.5)],
}


@dataclass(frozen=True)
class Case:
    kernel: Kernel

    def __str__(self):
        return re.sub(r" at 0x\w+", "", " ".join(repr(self.kernel).split()))  # the same name in every process

    @property
    def define(self):
        return DEFINITIONS[type(self.kernel)](self.kernel)

    @property
    def is_precomputed(self):
        return isinstance(self.kernel, Precomputed)

    @property
    def is_differentiable(self):
        return not isinstance(self.kernel, (Function, Precomputed))

    def draw(self, seed=0, n=23, m=7, dtype=np.float64):
        """Rows (n, d) and points (m, d) such that the first rows are points too."""
        rng = np.random.default_rng(seed)
        if self.is_precomputed:
            return rng.normal(size=(n, m + 2)).astype(dtype), rng.permutation(m).astype(np.float64)[:, np.newaxis]
        points = rng.normal(size=(m, D)).astype(dtype)
        rows = np.concatenate([points[:2], rng.normal(size=(n - 2, D)).astype(dtype)])
        return rows, points

    def size(self, rows, points):
        """sqrt(k(x,x) k(z,z)), against which errors are measured."""
        if self.is_precomputed:
            return np.ones((len(rows), len(points)))
        by_row = np.array([self.define(row[np.newaxis], row[np.newaxis])[0, 0] for row in rows])
        by_point = np.array([self.define(point[np.newaxis], point[np.newaxis])[0, 0] for point in points])
        return np.outer(np.sqrt(by_row), np.sqrt(by_point))


def is_stationary(kernel):
    if isinstance(kernel, (Sum, Product)):
        return is_stationary(kernel.left) and is_stationary(kernel.right)
    return isinstance(kernel, (Gaussian, Matern, Function))


CASES = [Case(kernel) for examples in EXAMPLES.values() for kernel in examples]
VECTORS = [case for case in CASES if not case.is_precomputed]
STATIONARY = [case for case in CASES if is_stationary(case.kernel)]
DIFFERENTIABLE = [case for case in CASES if case.is_differentiable]

every_kernel = pytest.mark.parametrize("case", CASES, ids=str)
every_kernel_of_vectors = pytest.mark.parametrize("case", VECTORS, ids=str)
every_stationary_kernel = pytest.mark.parametrize("case", STATIONARY, ids=str)
every_differentiable_kernel = pytest.mark.parametrize("case", DIFFERENTIABLE, ids=str)
both_dtypes = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def assert_tile(case, tile, rows, points, dtype=np.float64):
    rows, points = np.asarray(rows, dtype=np.float64), np.asarray(points, dtype=np.float64)
    error = np.abs(tile.astype(np.float64) - case.define(rows, points))
    assert tile.dtype == dtype
    assert np.all(error <= TOLERANCE[dtype] * case.size(rows, points)), np.max(error)


# ------------------------------------------------------------------------------------------------------ the classes


def public_kernels():
    classes = (getattr(kernels, name) for name in kernels.__all__)
    return [c for c in classes if inspect.isclass(c) and issubclass(c, Kernel) and not inspect.isabstract(c)]


@pytest.mark.parametrize("kernel_class", public_kernels())
def test_every_public_kernel_has_an_example_and_a_definition(kernel_class):
    assert EXAMPLES.get(kernel_class), f"add examples of {kernel_class.__name__} to EXAMPLES"
    assert kernel_class in DEFINITIONS, f"add the definition of {kernel_class.__name__} to DEFINITIONS"
    assert all(type(example) is kernel_class for example in EXAMPLES[kernel_class])


# -------------------------------------------------------------------------------------------------------- the tiles


@every_kernel
@both_dtypes
def test_tile_equals_the_definition(case, dtype):
    rows, points = case.draw(dtype=dtype)
    assert_tile(case, case.kernel(rows, points), rows, points, dtype)


@every_kernel
@both_dtypes
def test_section_fills_out_and_nothing_else(case, dtype):
    rows, points = case.draw(dtype=dtype)
    section = case.kernel.bind(points, dtype)
    assert (section.n_points, section.dtype) == (len(points), dtype)
    memory = np.full((len(rows) + 2, len(points)), np.nan, dtype=dtype)
    out = memory[1:-1]
    assert section.tile(rows, out) is out
    np.testing.assert_array_equal(out, section.tile(rows))
    assert np.all(np.isnan(memory[[0, -1]]))


@every_kernel
@pytest.mark.parametrize(
    "wrong",
    [
        lambda n, m: np.empty((n + 1, m)),
        lambda n, m: np.empty((n, m + 1)),
        lambda n, m: np.empty((n, m), dtype=np.float32),
        lambda n, m: np.empty((n, m), order="F"),
    ],
    ids=["rows", "columns", "dtype", "order"],
)
def test_out_that_cannot_hold_the_tile_is_refused(case, wrong):
    rows, points = case.draw()
    with pytest.raises(ValueError, match="out must be a C-contiguous float64 array"):
        case.kernel.bind(points).tile(rows, wrong(len(rows), len(points)))


@every_kernel
def test_a_section_serves_many_tiles(case):
    rows, points = case.draw()
    section = case.kernel.bind(points)
    whole = section.tile(rows)
    pieces = [section.tile(rows[start : start + 5]) for start in range(0, len(rows), 5)]
    np.testing.assert_allclose(np.concatenate(pieces), whole, rtol=0, atol=1e-13 * np.max(np.abs(whole)))


@every_kernel
def test_a_section_does_not_follow_later_changes_of_the_points(case):
    rows, points = case.draw()
    before = points.copy()
    section = case.kernel.bind(points)
    points += 1 if case.is_precomputed else 100.0
    assert_tile(case, section.tile(rows), rows, before)


@every_kernel
@both_dtypes
def test_no_rows_give_an_empty_tile(case, dtype):
    if isinstance(case.kernel, Function):
        pytest.skip("whether a function takes no rows is its own business")
    rows, points = case.draw(dtype=dtype)
    tile = case.kernel.bind(points, dtype).tile(rows[:0])
    assert tile.shape == (0, len(points))
    assert tile.dtype == dtype


@every_kernel
@pytest.mark.parametrize(
    "arrange",
    [
        np.asfortranarray,
        lambda array: np.repeat(array, 2, axis=0)[::2],
        lambda array: np.repeat(array, 2, axis=1)[:, ::2],
        lambda array: array.astype(">f8"),
        lambda array: array.tolist(),
    ],
    ids=["fortran", "every second row", "every second column", "byte order", "list"],
)
def test_layout_of_the_input_does_not_matter(case, arrange):
    rows, points = case.draw()
    # The mean of the points, to which they are shifted, is summed in the order in which they lie.
    np.testing.assert_allclose(case.kernel(arrange(rows), arrange(points)), case.kernel(rows, points), rtol=1e-13)


@every_kernel
@both_dtypes
def test_inputs_are_read_only(case, dtype):
    rows, points = case.draw(dtype=dtype)
    rows.flags.writeable = points.flags.writeable = False
    before = rows.copy(), points.copy()
    assert_tile(case, case.kernel(rows, points), rows, points, dtype)
    np.testing.assert_array_equal(rows, before[0])
    np.testing.assert_array_equal(points, before[1])


@every_kernel_of_vectors
def test_integers_are_computed_in_double_precision(case):
    rows = np.arange(12).reshape(4, D) % 5
    assert_tile(case, case.kernel(rows), rows, rows)


@every_kernel_of_vectors
def test_points_default_to_the_rows(case):
    rows, _ = case.draw()
    np.testing.assert_array_equal(case.kernel(rows), case.kernel(rows, rows))


@every_kernel_of_vectors
@pytest.mark.parametrize("width", [D - 1, D + 1])
def test_rows_of_another_width_are_refused(case, width):
    rows, points = np.ones((4, width)), case.draw()[1]
    with pytest.raises(ValueError, match=r".+"):
        case.kernel.bind(points).tile(rows)


@every_kernel
def test_diagonal(case):
    rows, _ = case.draw()
    if case.is_precomputed:
        with pytest.raises(ValueError, match="precomputed"):
            case.kernel.diagonal(rows)
        return
    diagonal = case.kernel.diagonal(rows)
    assert diagonal.dtype == np.float64
    np.testing.assert_allclose(diagonal, np.diagonal(case.define(rows, rows)), rtol=1e-13)


@every_kernel_of_vectors
def test_diagonal_of_float32_rows_is_of_full_precision(case):
    if isinstance(case.kernel, Function):
        pytest.skip("a function decides itself in which precision it computes")
    rows, _ = case.draw(dtype=np.float32)
    wide = rows.astype(np.float64)
    np.testing.assert_allclose(case.kernel.diagonal(rows), np.diagonal(case.define(wide, wide)), rtol=1e-13)


# ------------------------------------------------------------------------------------------- extremes of the inputs


@every_stationary_kernel
@both_dtypes
def test_a_large_common_offset_costs_no_precision(case, dtype):
    rows, points = case.draw()
    rows, points = (rows + 1e6).astype(dtype), (points + 1e6).astype(dtype)
    assert_tile(case, case.kernel(rows, points), rows, points, dtype)


@every_stationary_kernel
def test_points_are_centred_before_they_are_narrowed_to_float32(case):
    if isinstance(case.kernel, Function):
        pytest.skip("a function is given the points in the rows' precision")
    # Basis points need not lie on float32's grid, which is 1/16 wide here: cluster centres do not.
    rows, points = case.draw()
    rows, points = (rows + 1e6).astype(np.float32), points + 1e6
    assert_tile(case, case.kernel(rows, points), rows, points, np.float32)


@every_stationary_kernel
@pytest.mark.parametrize(("dtype", "far"), [(np.float64, 1e20), (np.float64, 1e200), (np.float32, 1e30)])
def test_an_outlier_among_the_points_costs_the_others_no_precision(case, dtype, far):
    rows, points = case.draw(dtype=dtype)
    points[-1] = far
    assert_tile(case, case.kernel(rows, points), rows, points, dtype)


@every_stationary_kernel
@pytest.mark.parametrize(("dtype", "apart"), [(np.float64, 1e10), (np.float32, 1e4)])
def test_two_distant_groups_of_points_keep_their_precision(case, dtype, apart):
    rows, points = case.draw(n=24, m=8)
    rows[::2] += apart
    points[::2] += apart
    rows, points = rows.astype(dtype), points.astype(dtype)
    assert_tile(case, case.kernel(rows, points), rows, points, dtype)


@every_stationary_kernel
@pytest.mark.parametrize(
    ("dtype", "far"),
    [(np.float64, 1e155), (np.float64, 1e200), (np.float32, 1e19), (np.float32, 2e19), (np.float32, 1e30)],
)
def test_kernel_of_huge_distances_is_zero(case, dtype, far):
    rows, points = case.draw(dtype=dtype)
    rows[2:] *= dtype(far)
    tile = case.kernel(rows, points)
    assert_tile(case, tile, rows, points, dtype)
    assert np.all(tile[2:] == 0)


@every_kernel_of_vectors
@pytest.mark.parametrize(("row_scale", "point_scale"), [(1e200, 1e-200), (1e-200, 1e200), (1e-200, 1e-200)])
def test_huge_and_tiny_values_where_the_definition_is_finite(case, row_scale, point_scale):
    rows, points = case.draw()
    rows, points = row_scale * rows[2:], point_scale * points
    expected = case.define(rows, points)
    np.testing.assert_allclose(case.kernel(rows, points), expected, rtol=1e-11, atol=1e-12 * np.max(np.abs(expected)))


@every_kernel_of_vectors
@both_dtypes
def test_tiles_hold_no_subnormal_numbers(case, dtype):
    if isinstance(case.kernel, Function):
        pytest.skip("the values of a function are its own")
    # Distances and inner products on a fine ladder, so that kernel values pass through all magnitudes.
    steps = np.concatenate([[0.0], np.geomspace(1e-12, 1e3, 800)])
    rows, points = np.outer(steps, np.ones(D)).astype(dtype), np.outer(steps[::50], [1.0, 0.9, 0.8]).astype(dtype)
    tile = np.abs(case.kernel(rows, points))
    assert np.all((tile == 0) | (tile >= np.finfo(dtype).tiny))


# -------------------------------------------------------------------------------------------------------- gradients


@every_differentiable_kernel
def test_gradient_with_respect_to_the_points(case):
    rows, points = case.draw()
    rows = rows[2:]  # not at r = 0, where Matérn 1/2 has a kink
    weights = np.random.default_rng(1).normal(size=(len(rows), len(points)))
    gradient = case.kernel.points_gradient(rows, points, weights)
    step = 1e-5  # central differences err by step² and by eps/step
    expected = np.empty_like(points)
    for j in range(points.shape[1]):
        shift = step * np.eye(1, D, j)
        change = case.define(rows, points + shift) - case.define(rows, points - shift)
        expected[:, j] = np.sum(weights * change, axis=0) / (2 * step)
    assert gradient.shape == points.shape
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-8 * np.max(np.abs(expected)))


@every_differentiable_kernel
def test_gradient_with_respect_to_the_parameters(case):
    rows, points = case.draw()
    weights = np.random.default_rng(1).normal(size=(len(rows), len(points)))
    at = case.kernel.get_log_parameters()
    gradient = case.kernel.parameter_gradient(rows, points, weights)
    assert gradient.keys() == at.keys()
    step = 1e-5
    for name, value in at.items():
        assert gradient[name].shape == value.shape
        for index in np.ndindex(value.shape):
            shift = np.zeros_like(value)
            shift[index] = step
            up = Case(case.kernel.with_log_parameters(at | {name: value + shift})).define(rows, points)
            down = Case(case.kernel.with_log_parameters(at | {name: value - shift})).define(rows, points)
            expected = np.sum(weights * (up - down)) / (2 * step)
            scale = np.sum(np.abs(weights * up))
            assert abs(gradient[name][index] - expected) <= 1e-8 * scale, name


@every_differentiable_kernel
def test_gradients_accept_float32_and_read_only_arrays(case):
    rows, points = case.draw(dtype=np.float32)
    weights = np.ones((len(rows), len(points)))
    for array in (rows, points, weights):
        array.flags.writeable = False
    wide = rows.astype(np.float64), points.astype(np.float64), weights
    scale = np.max(case.size(*wide[:2]))  # float32 tiles may enter, so the result is that precise
    np.testing.assert_allclose(
        case.kernel.points_gradient(rows, points, weights), case.kernel.points_gradient(*wide), atol=1e-3 * scale
    )
    by_parameter = case.kernel.parameter_gradient(rows, points, weights)
    for name, expected in case.kernel.parameter_gradient(*wide).items():
        np.testing.assert_allclose(by_parameter[name], expected, atol=1e-3 * scale)


@pytest.mark.parametrize("case", [case for case in STATIONARY if case.is_differentiable], ids=str)
def test_gradients_ignore_rows_at_huge_distances(case):
    rows, points = case.draw()
    weights = np.ones((len(rows), len(points)))
    far = np.vstack([rows, np.full((1, D), 1e200)])
    more = np.ones((len(far), len(points)))
    np.testing.assert_allclose(
        case.kernel.points_gradient(far, points, more), case.kernel.points_gradient(rows, points, weights), atol=1e-12
    )
    by_parameter = case.kernel.parameter_gradient(far, points, more)
    for name, expected in case.kernel.parameter_gradient(rows, points, weights).items():
        np.testing.assert_allclose(by_parameter[name], expected, atol=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if not case.is_differentiable], ids=str)
def test_an_unknown_gradient_is_refused(case):
    rows, points = case.draw()
    weights = np.ones((len(rows), len(points)))
    with pytest.raises(NotImplementedError, match="gradient"):
        case.kernel.points_gradient(rows, points, weights)
    with pytest.raises(NotImplementedError, match="gradient"):
        case.kernel.parameter_gradient(rows, points, weights)


# ------------------------------------------------------------------------------------------------------- parameters


@every_kernel
def test_log_parameters_go_round(case):
    values = case.kernel.get_log_parameters()
    assert values.keys() <= case.kernel.get_params().keys()
    again = case.kernel.with_log_parameters(values)
    assert again is not case.kernel
    for name, value in again.get_log_parameters().items():
        np.testing.assert_allclose(value, values[name], rtol=1e-15, atol=1e-15)
    rows, points = case.draw()
    assert_tile(case, again(rows, points), rows, points)


@every_kernel
def test_log_parameters_change_a_copy(case):
    before, values = clone(case.kernel), case.kernel.get_log_parameters()
    if not values:
        pytest.skip("no positive parameters")
    changed = case.kernel.with_log_parameters({name: value + 0.5 for name, value in values.items()})
    assert case.kernel.equals(before)
    assert not changed.equals(before)
    for name, value in changed.get_log_parameters().items():
        np.testing.assert_allclose(value, values[name] + 0.5, rtol=1e-14, atol=1e-15)


@every_kernel
def test_clones_are_equal_and_independent(case):
    copy = clone(case.kernel)
    assert copy is not case.kernel
    assert copy.equals(case.kernel)
    assert case.kernel.equals(copy)
    for name, value in case.kernel.get_params().items():
        if isinstance(value, (Kernel, np.ndarray)):
            assert copy.get_params()[name] is not value


@every_kernel
def test_kernels_of_other_types_are_not_equal(case):
    others = [other.kernel for other in CASES if type(other.kernel) is not type(case.kernel)]
    assert not any(case.kernel.equals(other) for other in [*others, None, "gaussian"])


@every_kernel
def test_every_number_among_the_parameters_matters_for_equality(case):
    for name, value in case.kernel.get_params().items():
        if isinstance(value, (int, float, np.ndarray)):
            assert not clone(case.kernel).set_params(**{name: value + 1}).equals(case.kernel), name


@every_kernel
def test_parameters_can_be_set_by_their_nested_names(case):
    copy = clone(case.kernel)
    assert copy.set_params(**copy.get_params(deep=True)) is copy
    assert copy.equals(case.kernel)


@every_kernel
def test_pickling(case):
    rows, points = case.draw()
    again = pickle.loads(pickle.dumps(case.kernel))
    assert again.equals(case.kernel)
    np.testing.assert_array_equal(again(rows, points), case.kernel(rows, points))


@every_kernel_of_vectors
def test_resolving_a_kernel_of_numbers_is_a_copy(case):
    resolved = case.kernel.resolve(case.draw()[0])
    assert resolved is not case.kernel
    assert resolved.equals(case.kernel)
