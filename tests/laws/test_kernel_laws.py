"""Laws of positive definite kernels, on generated rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics.pairwise import laplacian_kernel

from mercer.kernels import CompactGaussian, Function, Gaussian, Linear, Matern, Polynomial, Wendland

EPS = np.finfo(np.float64).eps

# Coordinates on a coarse grid collide often: equal rows, and rows that share a coordinate, are the hard cases.
# The fine grid is exact in float32, and keeps clear of values so small that their products are set to zero.
COORDINATES = st.one_of(st.integers(-4, 4).map(float), st.integers(-8192, 8192).map(lambda i: i / 1024))
POSITIVE = st.floats(0.1, 10.0)


@st.composite
def tables(draw, n_features=None, max_rows=12):
    shape = draw(st.integers(1, max_rows)), n_features or draw(st.integers(1, 4))
    return draw(arrays(np.float64, shape, elements=COORDINATES))


@st.composite
def pairs(draw):
    """Rows and points of the same width."""
    rows = draw(tables())
    return rows, draw(tables(n_features=rows.shape[1]))


# The exponent and the dimension follow the rows: guaranteed to be definite.
COMPACT = st.one_of(
    st.builds(CompactGaussian, POSITIVE, st.one_of(st.none(), POSITIVE), st.none(), POSITIVE),
    st.builds(Wendland, POSITIVE, st.integers(0, 2), st.none(), POSITIVE),
)
STATIONARY = st.one_of(
    st.builds(Gaussian, POSITIVE, POSITIVE),
    st.builds(Matern, POSITIVE, st.sampled_from([0.5, 1.5, 2.5]), POSITIVE),
    COMPACT,
)
LEAVES = st.one_of(
    STATIONARY,
    st.builds(Linear, POSITIVE),
    st.builds(Polynomial, st.integers(1, 3), POSITIVE, st.one_of(st.just(0.0), POSITIVE), POSITIVE),
    st.just(Function(laplacian_kernel)),
)
KERNELS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
    ),
    max_leaves=3,
)


def size(kernel, rows, points):
    """sqrt(k(x,x) k(z,z)), against which rounding is measured."""
    return np.outer(np.sqrt(kernel.diagonal(rows)), np.sqrt(kernel.diagonal(points)))


# Rounding of a tile relative to that: eps·|x̃|², with |x̃| up to 8·sqrt(4)/0.1, or the degrees of three polynomials.
ROUNDING = 1e-10


@given(KERNELS, tables())
def test_gram_matrices_are_symmetric(kernel, rows):
    gram = kernel(rows)
    assert np.all(np.abs(gram - gram.T) <= ROUNDING * size(kernel, rows, rows))


@given(KERNELS, tables())
def test_gram_matrices_are_positive_semi_definite(kernel, rows):
    gram = kernel(rows)
    trace = np.sum(kernel.diagonal(rows))
    assert np.linalg.eigvalsh((gram + gram.T) / 2)[0] >= -ROUNDING * trace


@st.composite
def compact_kernels_and_rows(draw):
    """A compact kernel at or above the rule for the dimension of its rows, with a support that some pairs share."""
    d = draw(st.integers(1, 10))
    rows = draw(tables(n_features=d, max_rows=24))
    scale = draw(st.one_of(st.floats(0.5, 20.0), arrays(np.float64, d, elements=st.floats(0.5, 20.0))))
    if draw(st.booleans()):
        exponent = draw(st.one_of(st.none(), st.just((d + 1) / 2), st.floats((d + 1) / 2, 2.0 * d + 1)))
        kernel = CompactGaussian(scale, draw(st.one_of(st.none(), st.floats(0.5, 50.0))), exponent, draw(POSITIVE))
    else:
        dimension = draw(st.one_of(st.none(), st.integers(d, 2 * d)))
        kernel = Wendland(scale, draw(st.integers(0, 2)), dimension, draw(POSITIVE))
    return kernel, rows


@given(compact_kernels_and_rows())
def test_guaranteed_compact_kernels_are_positive_semi_definite(drawn):
    kernel, rows = drawn
    gram = kernel(rows)
    assert kernel.is_guaranteed(rows.shape[1])
    assert np.linalg.eigvalsh((gram + gram.T) / 2)[0] >= -1e-10 * len(rows) * kernel.amplitude


@given(KERNELS, pairs())
def test_cauchy_schwarz(kernel, pair):
    rows, points = pair
    assert np.all(np.abs(kernel(rows, points)) <= (1 + ROUNDING) * size(kernel, rows, points))


@given(KERNELS, tables())
def test_the_diagonal_is_that_of_the_gram_matrix(kernel, rows):
    diagonal = kernel.diagonal(rows)
    assert np.all(np.abs(np.diagonal(kernel(rows)) - diagonal) <= ROUNDING * diagonal)


@given(KERNELS, pairs())
def test_kernels_are_symmetric_in_their_arguments(kernel, pair):
    rows, points = pair
    difference = kernel(rows, points) - kernel(points, rows).T
    assert np.all(np.abs(difference) <= ROUNDING * size(kernel, rows, points))


@given(KERNELS, pairs(), st.randoms(use_true_random=False))
def test_each_value_depends_on_its_row_and_point_only(kernel, pair, random):
    rows, points = pair
    whole = kernel(rows, points)
    i, j = random.randrange(len(rows)), random.randrange(len(points))
    alone = kernel(rows[i : i + 1], points[j : j + 1])
    scale = size(kernel, rows[i : i + 1], points[j : j + 1])
    assert abs(whole[i, j] - alone[0, 0]) <= ROUNDING * scale[0, 0]


@given(STATIONARY, pairs(), st.integers(-(10**6), 10**6))
def test_stationary_kernels_do_not_see_a_common_shift(kernel, pair, shift):
    rows, points = pair  # on a grid, so that the shift is exact
    moved = kernel(rows + shift, points + shift)
    assert np.all(np.abs(moved - kernel(rows, points)) <= ROUNDING * float(kernel.amplitude))


@given(STATIONARY, pairs())
def test_stationary_kernels_do_not_see_a_reflection(kernel, pair):
    rows, points = pair
    assert np.all(np.abs(kernel(-rows, -points) - kernel(rows, points)) <= ROUNDING * float(kernel.amplitude))


@given(STATIONARY, st.floats(0.01, 5.0), st.floats(0.01, 5.0))
def test_stationary_kernels_fall_with_the_distance(kernel, first, second):
    near, far = sorted([first, second])
    values = kernel(np.zeros((1, 1)), np.array([[0.0], [near], [far]]))[0]
    assert values[0] >= values[1] >= values[2] - 4 * EPS * values[1]


@given(KERNELS, KERNELS, pairs())
def test_sums_and_products_are_those_of_the_values(left, right, pair):
    rows, points = pair
    a, b = left(rows, points), right(rows, points)
    np.testing.assert_array_equal((left + right)(rows, points), a + b)
    product = (left * right)(rows, points)
    assert np.all((product == a * b) | ((product == 0) & (np.abs(a * b) < 1e-150)))


@given(KERNELS, KERNELS, KERNELS, pairs())
def test_products_distribute_over_sums(first, second, third, pair):
    rows, points = pair
    left, right = first * (second + third), first * second + first * third
    difference = left(rows, points) - right(rows, points)
    assert np.all(np.abs(difference) <= 16 * EPS * size(left, rows, points) + 1e-150)


@given(KERNELS, pairs())
def test_float32_agrees_with_float64(kernel, pair):
    rows, points = (table.astype(np.float32) for table in pair)
    wide = rows.astype(np.float64), points.astype(np.float64)
    difference = kernel(rows, points).astype(np.float64) - kernel(*wide)
    # 1e-4 is the tolerated error of one exponent; products of three kernels add theirs.
    assert np.all(np.abs(difference) <= 5e-4 * size(kernel, *wide))


@pytest.mark.parametrize("kernel", [Gaussian(), Matern(nu=0.5), Linear(), Polynomial()])
def test_more_rows_than_features_make_a_singular_matrix_that_stays_semi_definite(kernel):
    rows = np.random.default_rng(0).normal(size=(60, 1))
    rows = np.concatenate([rows, rows])  # every row twice
    gram = kernel(rows)
    assert np.linalg.eigvalsh(gram)[0] >= -120 * EPS * np.trace(gram)
