"""What every kernel is: a positive definite function that can fill a tile."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from mercer._typing import FloatArray

if TYPE_CHECKING:
    from mercer.kernels.algebra import Sum
    from mercer.kernels.closed_form import Form


Gradients = tuple[FloatArray, dict[str, FloatArray]]  # by the points, and by log-parameters

_DIAGONAL_BLOCK = 64  # rows: of a small square of kernel values only the diagonal is used


class Factors(NamedTuple):
    """How compiled code makes values k(x, z) = φ(l(x)·r(z)) of rows; r is l with its last two entries exchanged."""

    width: int  # of l
    # Address of a callback "fiifff" that fills in l: rows, their number and columns; scales; l, one per row; and a
    # number that tells how far the rows are.
    scaling: int
    scales: FloatArray
    farthest: float  # rows that are farther than this have no factors
    # Address of a callback "fiiififif" that replaces a tile of products by kernel values: tile, its rows, columns and
    # stride; left factors, their number; right factors, one of them per row, and the stride; parameters.
    profile: int
    parameters: FloatArray


class Section(ABC):
    """The function rows ↦ k(rows, points), with all that depends on the points alone already done."""

    n_points: int  # columns of a tile
    dtype: np.dtype[Any]  # of a tile, float32 or float64
    right_factors: FloatArray  # r of the points, a column each, of a section that has ``factors``

    @abstractmethod
    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Kernel values, shape (rows, points), in ``out`` where it is given (C-contiguous, of this dtype)."""

    def replace(self, points: FloatArray) -> bool:
        """Take other points in place of those given, where that is less work than a new section; whether it is done."""
        return False

    def factors(self) -> Factors | None:
        """How compiled code makes kernel values of rows, or None where these need more than a product."""
        return None


class Kernel(BaseEstimator, ABC):
    """A positive definite kernel.

    Kernels follow scikit-learn's conventions for parameters, so that they clone, print, compare and nest: a grid search
    sees ``kernel__length_scale``. They add and multiply with ``+`` and ``*``, and a positive number
    times a kernel scales it.

    A subclass defines ``bind`` and, where they are wanted, ``diagonal`` and ``gradients``; ``log_parameters`` names its
    positive parameters, with respect to whose logarithms the gradient is taken. With a ``name``, estimators accept it
    as ``kernel="name"``; with a ``closed_form`` it can be exported.
    """

    name: ClassVar[str | None] = None
    log_parameters: ClassVar[tuple[str, ...]] = ()
    same_diagonal: ClassVar[bool] = False  # whether k(x, x) is the same for all x

    @abstractmethod
    def bind(self, points: FloatArray, dtype: Any = np.float64) -> Section:
        """Prepare k(·, points) for many tiles of rows."""

    def diagonal(self, rows: FloatArray) -> FloatArray:
        """k(x, x) for each row, shape (rows,); here from the kernel matrices of small blocks of rows."""
        blocks = [rows[start : start + _DIAGONAL_BLOCK] for start in range(0, len(rows), _DIAGONAL_BLOCK)]
        return np.concatenate([np.diagonal(self(block)) for block in blocks] or [np.empty(0)])

    def gradients(
        self, rows: FloatArray, points: FloatArray, weights: FloatArray, *, parameters: bool = True
    ) -> Gradients:
        r"""Contract both gradients with weights g of shape (n, m); nothing of size n·m·d is formed.

        By the points (m, d): :math:`\sum_i g_{ij}\,\partial k(x_i, z_j)/\partial z_j`. By each of
        ``get_log_parameters()``, in its shape: :math:`\sum_{ij} g_{ij}\,\partial k_{ij}/\partial\log\theta`; these may
        be left out if ``parameters`` is false.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no known gradient. Use another kernel of mercer.kernels, or define the method "
            "`gradients` in a subclass of Kernel."
        )

    def points_gradient(self, rows: FloatArray, points: FloatArray, weights: FloatArray) -> FloatArray:
        r"""By the points, :math:`\sum_i g_{ij}\,\partial k(x_i, z_j)/\partial z_j`, shape (m, d); see ``gradients``."""
        return self.gradients(rows, points, weights, parameters=False)[0]

    def parameter_gradient(self, rows: FloatArray, points: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        r"""By log-parameters, :math:`\sum_{ij} g_{ij}\,\partial k_{ij}/\partial\log\theta`; see ``gradients``."""
        return self.gradients(rows, points, weights)[1]

    def diagonal_gradient(self, rows: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Contract the gradient of k(x, x) with respect to log-parameters, Σ g_i ∂k(x_i, x_i)/∂log θ; weights (n,)."""
        total: dict[str, FloatArray] = {}
        for start in range(0, len(rows), _DIAGONAL_BLOCK):
            part = slice(start, start + _DIAGONAL_BLOCK)
            gradient = self.parameter_gradient(rows[part], rows[part], np.diag(weights[part]))
            total = {name: total.get(name, 0.0) + value for name, value in gradient.items()}
        return total

    def __call__(self, rows: FloatArray, points: FloatArray | None = None, out: FloatArray | None = None) -> FloatArray:
        """Kernel matrix k(rows, points), shape (n, m); ``points=None`` means the rows themselves."""
        rows = finite_table(rows, "rows")
        points = rows if points is None else finite_table(points, "points")
        dtype = np.float32 if rows.dtype == np.float32 else np.float64
        return self.bind(points, dtype).tile(rows, out)

    def resolve(self, sample: FloatArray, weights: FloatArray | None = None) -> Self:
        """Check the parameters and replace those that depend on data (``"median"``) by values for this sample."""
        self.check(n_features=sample.shape[1])
        return clone(self)  # type: ignore[no-any-return]

    @property
    def needs_data(self) -> bool:
        """Whether a parameter is still to be found from data, by ``resolve``."""
        return False

    @property
    def noise_level(self) -> float:
        """The level of what is noise (``White``) in the kernel."""
        return 0.0

    def without_noise(self) -> Kernel | None:
        """The kernel without what is noise in it: itself if there is none, None if there is nothing else."""
        return self

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` if a parameter is out of range or does not fit rows of that width."""

    def closed_form(self, n_features: int) -> Form:
        """The kernel as data, for export to C and ONNX (see ``closed_form``); defined by classes that allow it."""
        raise NotImplementedError

    def get_log_parameters(self) -> dict[str, FloatArray]:
        """Logarithms of the positive parameters, by the names that ``set_params`` takes."""
        parameters = self.get_params()
        return {name: np.log(np.asarray(parameters[name], dtype=np.float64)) for name in self.log_parameters}

    def with_log_parameters(self, values: Mapping[str, FloatArray]) -> Self:
        """Return a copy with the parameters at exp(values)."""
        changed = {
            name: float(np.exp(value)) if np.ndim(value) == 0 else np.exp(value) for name, value in values.items()
        }
        return clone(self).set_params(**changed)  # type: ignore[no-any-return]

    def equals(self, other: object) -> bool:
        """Whether the other kernel is of the same type with the same parameters."""
        if type(self) is not type(other):
            return False
        theirs = other.get_params(deep=False)
        return all(_same(mine, theirs[name]) for name, mine in self.get_params(deep=False).items())

    def __add__(self, other: object) -> Sum:
        """Sum of two kernels."""
        from mercer.kernels.algebra import Sum

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: object) -> Kernel:
        """Product of two kernels, or of a kernel and a positive number."""
        from mercer.kernels.algebra import Product

        if isinstance(other, Kernel):
            return Product(self, other)
        if isinstance(other, (int, float, np.floating, np.integer)):
            return self._scaled(check_positive(other, "the factor of a kernel"))
        return NotImplemented

    __rmul__ = __mul__

    def _scaled(self, factor: float) -> Kernel:
        return clone(self).set_params(amplitude=self.amplitude * factor)  # type: ignore[no-any-return]


_SYNONYMS = {"rbf": "gaussian", "poly": "polynomial"}


def as_kernel(kernel: Any, n_features: int | None = None) -> Kernel:
    """Return the kernel object for a name, a kernel of ours or of scikit-learn, or a function of two matrices.

    By name stationary kernels take their length scale from the data (the median distance); "rbf" is "gaussian", "poly"
    is "polynomial". Kernels of ``sklearn.gaussian_process`` are read with their parameters (see ``scikit_learn``); one
    of them, ``ExpSineSquared``, only for rows of one feature, which are assumed if their number is not given.

    Examples
    --------
    >>> from mercer.kernels import as_kernel
    >>> as_kernel("gaussian")
    Gaussian(length_scale='median')
    """
    from mercer.kernels import KERNELS, Function, Stationary

    if isinstance(kernel, Kernel):
        return kernel
    named = {each.name: each for each in KERNELS if each.name is not None}
    if isinstance(kernel, str) and _SYNONYMS.get(kernel, kernel) in named:
        found = named[_SYNONYMS.get(kernel, kernel)]
        return found(length_scale="median") if issubclass(found, Stationary) else found()
    if callable(kernel) and not isinstance(kernel, type):
        from mercer.kernels.scikit_learn import is_process_kernel, read_process_kernel

        return read_process_kernel(kernel, n_features) if is_process_kernel(kernel) else Function(kernel)
    names = ", ".join(repr(name) for name in [*named, *_SYNONYMS])
    raise ValueError(f"kernel must be one of {names}, a kernel object, or a function of two matrices; got {kernel!r}.")


def finite_table(table: Any, name: str) -> FloatArray:
    """A two-dimensional array of numbers, or ``ValueError``."""
    array = np.atleast_2d(np.asarray(table))
    if array.ndim != 2 or array.dtype.kind not in "fiub" or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must form a two-dimensional array of finite numbers.")
    return array


def check_positive(value: Any, name: str) -> float:
    """Return the value as a float, or raise ``ValueError`` if it is not a finite number above zero."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not (np.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be a finite number above zero, got {value!r}.")
    return number


def check_each_positive(value: Any, name: str, n_features: int | None = None) -> None:
    """Raise ``ValueError`` unless the value is a number above zero, or an array of such numbers, one per feature."""
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.ndim > 1 or numbers.size == 0 or not np.all(np.isfinite(numbers) & (numbers > 0)):
        raise ValueError(f"{name} must be finite and above zero, one number or one per feature; got {value!r}.")
    if numbers.ndim == 1 and n_features is not None and numbers.size != n_features:
        raise ValueError(f"{name} has {numbers.size} values, but the rows have {n_features} features.")


def tile_buffer(section: Section, n_rows: int, out: FloatArray | None) -> FloatArray:
    """Return ``out`` if it can hold the tile, a new array if it is None."""
    shape = (n_rows, section.n_points)
    if out is None:
        return np.empty(shape, dtype=section.dtype)
    if out.shape != shape or out.dtype != section.dtype or not out.flags.c_contiguous:
        msg = f"out must be a C-contiguous {section.dtype} array of shape {shape}, got {out.dtype} {out.shape}."
        raise ValueError(msg)
    return out


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Kernel):
        return first.equals(second)
    if isinstance(first, (np.ndarray, list, tuple)) or isinstance(second, (np.ndarray, list, tuple)):
        return bool(np.array_equal(np.asarray(first), np.asarray(second)))
    if isinstance(first, partial) and isinstance(second, partial):
        return (first.func, first.args, first.keywords) == (second.func, second.args, second.keywords)
    if first == second or not callable(first):
        return bool(first == second)
    try:  # callables may be copies of each other; those that cannot be pickled are not known to be
        return pickle.dumps(first) == pickle.dumps(second)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
