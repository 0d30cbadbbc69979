"""What every kernel promises, checked on every public kernel class against its definition.

All of this runs on a new class once it is in ``mercer.kernels.KERNELS``: by its default parameters and its own formula,
or by the examples and the definition in ``tests.kernel_cases``, where it has some.
"""

import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from mercer import kernels
from mercer.kernels import Function, Kernel
from tests.kernel_cases import (
    CASES,
    D,
    assert_tile,
    both_dtypes,
    every_kernel,
    every_kernel_object,
    every_kernel_of_vectors,
    every_stationary_kernel,
    every_vanishing_kernel,
)

# ------------------------------------------------------------------------------------------------------ the classes


def test_every_public_kernel_is_listed_and_walked():
    classes = (getattr(kernels, name) for name in kernels.__all__)
    public = {c for c in classes if inspect.isclass(c) and issubclass(c, Kernel) and not inspect.isabstract(c)}
    assert public == set(kernels.KERNELS) == {type(case.kernel) for case in CASES}


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
    # BLAS sums in the order in which the numbers lie.
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


@every_vanishing_kernel
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


# ------------------------------------------------------------------------------------------------------- parameters


@every_kernel_object
def test_log_parameters_go_round(case):
    values = case.kernel.get_log_parameters()
    assert values.keys() <= case.kernel.get_params().keys()
    again = case.kernel.with_log_parameters(values)
    assert again is not case.kernel
    for name, value in again.get_log_parameters().items():
        np.testing.assert_allclose(value, values[name], rtol=1e-15, atol=1e-15)
    rows, points = case.draw()
    assert_tile(case, again(rows, points), rows, points)


@every_kernel_object
def test_log_parameters_change_a_copy(case):
    before, values = clone(case.kernel), case.kernel.get_log_parameters()
    if not values:
        pytest.skip("no positive parameters")
    changed = case.kernel.with_log_parameters({name: value + 0.5 for name, value in values.items()})
    assert case.kernel.equals(before)
    assert not changed.equals(before)
    for name, value in changed.get_log_parameters().items():
        np.testing.assert_allclose(value, values[name] + 0.5, rtol=1e-14, atol=1e-15)


@every_kernel_object
def test_clones_are_equal_and_independent(case):
    copy = clone(case.kernel)
    assert copy is not case.kernel
    assert copy.equals(case.kernel)
    assert case.kernel.equals(copy)
    for name, value in case.kernel.get_params().items():
        if isinstance(value, (Kernel, np.ndarray)):
            assert copy.get_params()[name] is not value


@every_kernel_object
def test_kernels_of_other_types_are_not_equal(case):
    others = [other.kernel for other in CASES if type(other.kernel) is not type(case.kernel)]
    assert not any(case.kernel.equals(other) for other in [*others, None, "gaussian"])


@every_kernel_object
def test_every_number_among_the_parameters_matters_for_equality(case):
    for name, value in case.kernel.get_params().items():
        if isinstance(value, (int, float, np.ndarray)):
            assert not clone(case.kernel).set_params(**{name: value + 1}).equals(case.kernel), name


@every_kernel_object
def test_parameters_can_be_set_by_their_nested_names(case):
    copy = clone(case.kernel)
    assert copy.set_params(**copy.get_params(deep=True)) is copy
    assert copy.equals(case.kernel)


@every_kernel_object
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
