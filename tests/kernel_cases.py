"""Every public kernel with its definition, for the suites that walk over all of them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.metrics.pairwise import laplacian_kernel

from mercer.kernels import (
    KERNELS,
    CompactGaussian,
    Constant,
    Function,
    Gaussian,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    Precomputed,
    Product,
    RationalQuadratic,
    Stationary,
    Sum,
    Wendland,
    White,
)

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


def rational_quadratic(kernel):
    def define(rows, points):
        with np.errstate(over="ignore", under="ignore"):
            squares = distance(rows, points, kernel.length_scale) ** 2
            return kernel.amplitude * np.exp(-kernel.shape * np.log1p(squares / (2 * kernel.shape)))

    return define


def periodic(kernel):
    def define(rows, points):
        # The remainders are exact, the differences of distant rows are not.
        x, z = (np.fmod(each, kernel.period) for each in (rows, points))
        angles = np.pi * (x[:, np.newaxis, :] - z[np.newaxis, :, :]) / kernel.period
        exponents = -2 * np.sum((np.sin(angles) / kernel.length_scale) ** 2, axis=-1)
        return kernel.amplitude * np.exp(exponents)

    return define


def compact_gaussian(kernel):
    def define(rows, points):
        r, d = distance(rows, points, kernel.length_scale), rows.shape[1]
        mean = np.prod(np.broadcast_to(kernel.length_scale, d)) ** (1 / d)
        support = 3 * np.sqrt(2) if kernel.cutoff is None else kernel.cutoff / mean
        exponent = kernel.exponent or (d if d % 2 else d + 1)
        near = np.minimum(r, support)
        return kernel.amplitude * np.where(r < support, (1 - near / support) ** exponent * np.exp(-(near**2) / 2), 0.0)

    return define


def wendland(kernel):
    def define(rows, points):
        r = np.minimum(distance(rows, points, kernel.length_scale), 1.0)
        k = kernel.smoothness
        q = (kernel.dimension or rows.shape[1]) // 2 + k + 1
        polynomial = [1, (q + 1) * r + 1, ((q**2 + 4 * q + 3) * r**2 + (3 * q + 6) * r + 3) / 3][k]
        return kernel.amplitude * (1 - r) ** (q + k) * polynomial

    return define


def linear(kernel):
    return lambda rows, points: kernel.amplitude * (rows @ points.T)


def constant(kernel):
    return lambda rows, points: np.full((len(rows), len(points)), kernel.amplitude)


def white(_kernel):
    return lambda rows, points: np.zeros((len(rows), len(points)))


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


def by_formula(kernel):
    """The kernel's own formula, in Python and number by number."""

    def define(rows, points):
        formula = kernel.for_dimension(rows.shape[1]).formula()
        value = np.vectorize(lambda r: formula.value.formula(-0.5 * r * r, *formula.numbers), otypes=[np.float64])
        with np.errstate(over="ignore", under="ignore"):
            return kernel.amplitude * value(distance(rows, points, kernel.length_scale))

    return define


def definition(kernel):
    return DEFINITIONS.get(type(kernel), by_formula)(kernel)


def added(kernel):
    left, right = definition(kernel.left), definition(kernel.right)
    return lambda rows, points: left(rows, points) + right(rows, points)


def multiplied(kernel):
    left, right = definition(kernel.left), definition(kernel.right)
    return lambda rows, points: left(rows, points) * right(rows, points)


DEFINITIONS: dict[type[Kernel], Callable[[Any], Callable[..., Any]]] = {
    CompactGaussian: compact_gaussian,
    Constant: constant,
    Function: laplacian,
    Gaussian: gaussian,
    Linear: linear,
    Matern: matern,
    Periodic: periodic,
    Polynomial: polynomial,
    Precomputed: chosen_columns,
    Product: multiplied,
    RationalQuadratic: rational_quadratic,
    Sum: added,
    Wendland: wendland,
    White: white,
}

EXAMPLES: dict[type[Kernel], list[Kernel]] = {
    CompactGaussian: [
        CompactGaussian(exponent=3),
        CompactGaussian(0.7, cutoff=4.0, exponent=2.5, amplitude=2.5),
        CompactGaussian(np.array([0.5, 1.0, 3.0]), exponent=5, amplitude=2.5),
        CompactGaussian(np.array([0.5, 1.0, 3.0]), cutoff=5.0, exponent=2),
    ],
    Constant: [Constant(), Constant(2.5)],
    Function: [Function(laplacian_kernel), Function(laplacian_kernel, amplitude=2.5)],
    Gaussian: [Gaussian(), Gaussian(0.7, amplitude=2.5), Gaussian(np.array([0.5, 1.0, 3.0]))],
    Linear: [Linear(), Linear(amplitude=2.5)],
    Matern: [
        *(Matern(nu=nu) for nu in (0.5, 1.5, 2.5)),
        *(Matern(np.array([0.5, 1.0, 3.0]), nu=nu, amplitude=2.5) for nu in (0.5, 1.5, 2.5)),
    ],
    Periodic: [
        Periodic(),
        Periodic(2.5, 0.7, amplitude=2.5),
        Periodic(np.array([2.0, 3.0, 5.0]), np.array([0.7, 1.0, 3.0]), amplitude=2.5),
    ],
    Polynomial: [Polynomial(), Polynomial(degree=4, scale=0.3, offset=0.0, amplitude=2.5), Polynomial(degree=1)],
    Precomputed: [Precomputed()],
    Product: [
        Gaussian(2.0) * Linear(0.5),
        Matern(2.0, nu=2.5) * (Gaussian(np.array([0.5, 1.0, 3.0])) + Polynomial(2)),
    ],
    RationalQuadratic: [
        *(RationalQuadratic(shape=shape) for shape in (1.0, 0.5, 3.0)),
        RationalQuadratic(np.array([0.5, 1.0, 3.0]), shape=2.0, amplitude=2.5),
        RationalQuadratic(np.array([0.5, 1.0, 3.0]), shape=0.7, amplitude=2.5),
    ],
    Sum: [
        Gaussian(2.0) + Linear(0.5),
        Matern(nu=0.5) * Gaussian(3.0) + Matern(0.5),
        CompactGaussian(cutoff=3.0, exponent=3) + Wendland(5.0, dimension=3) * Gaussian(3.0),
    ],
    Wendland: [
        *(Wendland(4.0, smoothness=k, dimension=3) for k in (0, 1, 2)),
        *(Wendland(np.array([2.0, 3.0, 5.0]), smoothness=k, dimension=8, amplitude=2.5) for k in (0, 1, 2)),
        Wendland(dimension=3),
    ],
    White: [White(), White(0.3)],
}


@dataclass(frozen=True)
class Case:
    kernel: Kernel

    def __str__(self):
        return re.sub(r" at 0x\w+", "", " ".join(repr(self.kernel).split()))  # the same name in every process

    @property
    def define(self):
        return definition(self.kernel)

    @property
    def is_precomputed(self):
        return isinstance(self.kernel, Precomputed)

    @property
    def is_differentiable(self):
        return not isinstance(self.kernel, (Function, Precomputed, White))

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
    return isinstance(kernel, (Function, Periodic, Stationary))


def vanishes(kernel):
    """Whether the kernel is zero at distances of 1e19 and more."""
    if isinstance(kernel, (Sum, Product)):
        return vanishes(kernel.left) and vanishes(kernel.right)
    return is_stationary(kernel) and not isinstance(kernel, Periodic) and getattr(kernel, "shape", 1.0) >= 1.0


CASES = [Case(example) for kernel in KERNELS for example in EXAMPLES.get(kernel) or [kernel()]]
FUNCTIONS = [case for case in CASES if not isinstance(case.kernel, White)]  # noise connects no rows
VECTORS = [case for case in FUNCTIONS if not case.is_precomputed]
STATIONARY = [case for case in CASES if is_stationary(case.kernel)]
VANISHING = [case for case in STATIONARY if vanishes(case.kernel)]
DIFFERENTIABLE = [case for case in CASES if case.is_differentiable]

every_kernel_object = pytest.mark.parametrize("case", CASES, ids=str)
every_kernel = pytest.mark.parametrize("case", FUNCTIONS, ids=str)
every_kernel_of_vectors = pytest.mark.parametrize("case", VECTORS, ids=str)
every_stationary_kernel = pytest.mark.parametrize("case", STATIONARY, ids=str)
every_vanishing_kernel = pytest.mark.parametrize("case", VANISHING, ids=str)
every_differentiable_kernel = pytest.mark.parametrize("case", DIFFERENTIABLE, ids=str)
both_dtypes = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def assert_tile(case, tile, rows, points, dtype=np.float64):
    rows, points = np.asarray(rows, dtype=np.float64), np.asarray(points, dtype=np.float64)
    error = np.abs(tile.astype(np.float64) - case.define(rows, points))
    assert tile.dtype == dtype
    assert np.all(error <= TOLERANCE[dtype] * case.size(rows, points)), np.max(error)
