"""Whether the parts of a stored object fit together: the vocabulary of ``check_stored``.

What is checked is what compiled loops and BLAS rely on, and what makes a model fail, or mean nothing, when it is used.
Whether its numbers are good ones is not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.exceptions import ArchiveError

LARGEST_INT = 2**63


def need(condition: Any, message: str) -> None:
    """Raise ``ArchiveError`` unless the condition holds."""
    if not condition:
        raise ArchiveError(message)


@contextmanager
def refusing(message: str) -> Iterator[None]:
    """Turn what values raise that were never meant to come together into an ``ArchiveError``."""
    try:
        yield
    except ArchiveError:
        raise
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise ArchiveError(f"{message}: {str(error)[:500]}") from error


def check_shape(array: AnyArray, shape: tuple[int, ...], name: str) -> None:
    """Raise unless the array has that shape."""
    need(array.shape == shape, f"{name} has shape {array.shape}, where {shape} fits the rest.")


def check_finite(array: AnyArray, name: str) -> None:
    """Raise if the array has NaN or infinity."""
    need(np.all(np.isfinite(array)), f"{name} has NaN or infinity.")


def check_square(matrix: FloatArray, size: int, name: str, *, order: str) -> None:
    """Raise unless the matrix is as BLAS takes it: float64, square, contiguous by rows ("C") or columns ("F")."""
    check_shape(matrix, (size, size), name)
    # A part of a larger array, which has neither order, is stored by rows.
    contiguous = matrix.flags.f_contiguous if order == "F" else matrix.flags.c_contiguous or not matrix.flags.forc
    need(matrix.dtype == np.float64 and contiguous, f"{name} is not float64, contiguous in order {order}.")


def check_lower(matrix: FloatArray, size: int, name: str) -> None:
    """Raise unless this is a Cholesky factor as LAPACK takes it: contiguous by columns, its diagonal positive."""
    check_square(matrix, size, name, order="F")
    check_finite(matrix, name)
    need(np.all(np.diagonal(matrix) > 0), f"{name} has a diagonal that is not positive.")


def check_columns(array: FloatArray, n_rows: int, name: str) -> None:
    """Raise unless the array has two dimensions, so many rows, and at least one column."""
    need(array.ndim == 2 and len(array) == n_rows and array.shape[1], f"{name} has shape {array.shape}.")


def check_index(index: IntArray, size: int, name: str, *, least: int = 0) -> None:
    """Raise unless these are numbers of one dimension in least..size-1."""
    inside = index.ndim == 1 and (not len(index) or (int(index.min()) >= least and int(index.max()) < size))
    need(inside, f"{name} goes beyond {size} entries.")


def check_permutation(order: IntArray, size: int, name: str) -> None:
    """Raise unless the array is a permutation of 0..size-1."""
    check_index(order, size, name)
    need(len(order) == size and len(np.unique(order)) == size, f"{name} is no permutation of {size} rows.")


def check_kernel(kernel: Any, n_features: int) -> None:
    """Raise unless the kernel has numbers for parameters, which fit rows of that width."""
    with refusing("the kernel does not fit"):
        fits = not kernel.needs_data
        kernel.check(n_features)
    need(fits and not getattr(kernel, "is_automatic", False), "the kernel of a fitted model has no length scale.")
    numbers = [value for value in kernel.get_params().values() if isinstance(value, int)]
    need(all(abs(value) < LARGEST_INT for value in numbers), "the kernel does not fit: a number is too large.")


def check_compressed(sizes: tuple[int, ...], data: AnyArray, indices: AnyArray, starts: AnyArray) -> None:
    """Raise unless the arrays make a sparse matrix; ``sizes``: (rows, columns) by rows, (columns, rows) by columns."""
    for each in (indices, starts):
        need(each.ndim == 1 and each.dtype in (np.int32, np.int64), "a sparse matrix has indices of int32 or int64.")
    need(data.shape == indices.shape and data.dtype.kind == "f", "a sparse matrix has one number for each index.")
    need(len(starts) == sizes[0] + 1, "a sparse matrix has not as many rows as it says.")
    rising = int(starts[0]) == 0 and np.all(starts[1:] >= starts[:-1]) and int(starts[-1]) == len(indices)
    need(rising, "rows of a sparse matrix overlap.")
    check_index(indices, sizes[1], "a sparse matrix")


def check_unit_lower(lower: Any, pivots: FloatArray) -> None:
    """Raise unless this is L of LDLᵀ, by columns, the diagonal first, sorted, and the pivots are those of D."""
    n = len(pivots)
    check_shape(pivots, (n,), "pivots of a factor")
    need(lower.shape == (n, n), "a factor has not as many pivots as columns.")
    check_compressed((n, n), lower.data, lower.indices, lower.indptr)
    need(np.all(np.diff(lower.indptr) >= 1), "a factor has empty columns.")
    need(np.array_equal(lower.indices[lower.indptr[:-1]], np.arange(n)), "a factor has no diagonal.")
    rising = np.diff(lower.indices) > 0
    rising[lower.indptr[1:-1] - 1] = True  # from one column to the next
    need(np.all(rising), "a factor is not sorted.")
    check_finite(lower.data, "a factor")
    need(np.all(pivots > 0) and np.all(np.isfinite(pivots)), "pivots of a factor are not positive.")


def check_estimator(model: Any, *, n_outputs: int, n_features: int | None, fewest_classes: int = 2) -> None:
    """Raise unless scikit-learn's attributes fit a model of such outputs and features (None: points are no rows)."""
    given, width = vars(model), model.n_features_in_
    need(width >= 1, "a model has no features.")
    need(n_features is None or width == n_features, f"a model of {width} features has {n_features}.")
    need(n_outputs == 1 or not given.get("_flat", False), "a model of one-dimensional targets has several outputs.")
    if "feature_names_in_" in given:
        names = given["feature_names_in_"]
        check_shape(names, (width,), "names of features")
        need(all(isinstance(each, str) for each in names.tolist()), "names of features are no text.")
    if "classes_" in given:
        n_classes = len(given["classes_"])
        check_shape(given["classes_"], (n_classes,), "classes")
        need(n_classes >= fewest_classes, f"a model has {n_classes} classes.")
        numbers = {"threshold": 1, "largest": n_classes, "pairs": n_classes * (n_classes - 1) // 2}
        rule = given.get("decision_rule_", "threshold" if n_classes <= 2 else "largest")
        need(n_outputs == numbers.get(rule), f"a model of {n_classes} classes has {n_outputs} outputs.")
