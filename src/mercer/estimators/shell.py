"""What estimators share: arguments, locks and executors; what a basis reports; merging."""

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import field
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from scipy.sparse import issparse

from mercer._stored.checks import check_estimator
from mercer._typing import FloatArray, RandomState
from mercer._validation import (
    Integral,
    Interval,
    check_is_fitted,
    check_random_state,
    check_table,
    is_fitted,
    parameters,
)
from mercer.basis import choose_basis
from mercer.engine import (
    ArrayRows,
    ArrayTable,
    Executor,
    Rows,
    Source,
    SparseRows,
    Threads,
    blas_threads,
    given_executor,
)
from mercer.estimators.collections import lazily, takes_collections
from mercer.estimators.kernel_parameter import KernelParameter
from mercer.estimators.sources import rows_of_source
from mercer.exceptions import GeneralisationWarning, warn
from mercer.kernels import Kernel
from mercer.methods.frame import Frame, target_shift
from mercer.methods.length_scales import fitted_kernel
from mercer.model import Calibration, KernelExpansion

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

_WORSE = 1.1  # times the squared error of the mean: beyond what chance makes of targets that are noise
_COPIED = 2.0  # times the squared error, if a row is left out with its copies
_FEW = 20  # rows, of which nothing can be said

# By identity, and not attributes of the estimators: a lock cannot be pickled, copied or compared.
_locks: dict[int, Any] = {}
_lock_of_locks = threading.Lock()


def _forget_locks() -> None:
    """Begin without locks in a forked process, where the threads that held them do not exist."""
    global _lock_of_locks  # noqa: PLW0603  one per process
    _lock_of_locks = threading.Lock()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


def _lock_of(estimator: Any) -> Any:
    with _lock_of_locks:
        lock = _locks.get(id(estimator))
        if lock is None:
            lock = _locks[id(estimator)] = threading.RLock()
            weakref.finalize(estimator, _locks.pop, id(estimator), None)
        return lock


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Leave the estimator as it was if the work inside fails or is interrupted, and let one thread at a time change it.

    Threads that call ``partial_fit`` of one estimator take turns, so that no rows are lost. BLAS, too, has one thread
    if that is what the estimator has.
    """
    with _lock_of(estimator), held_blas(estimator):
        state = dict(vars(estimator))
        try:
            yield
        except BaseException as error:
            vars(estimator).update(state)
            for name in vars(estimator).keys() - state.keys():
                del vars(estimator)[name]
            if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt):
                raise KeyboardInterrupt from None  # Ctrl-C in a compiled function, which knows no such exception
            raise


def held_blas(estimator: Any) -> AbstractContextManager[None]:
    """Hold BLAS to one thread with ``n_jobs=1``, outside of passes, too; more are held by each pass to its share."""
    executor = given_executor()
    n_jobs = getattr(estimator, "n_jobs", None) if executor is None else getattr(executor, "n_jobs", None)
    return blas_threads(1) if n_jobs == 1 else nullcontext()


def on_its_threads(
    method: Callable[Concatenate[Any, _Given], _Result],
) -> Callable[Concatenate[Any, _Given], _Result]:
    """A method that predicts, with BLAS held to one thread if that is what the estimator has; lazy on collections."""

    @wraps(method)
    def held(self: Any, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        with held_blas(self):
            return method(self, *args, **kwargs)

    return lazily(held)


def snapshot(estimator: Any) -> Any:
    """A shallow copy of the state between two changes, for one that is merged into another; no two locks are held."""
    with _lock_of(estimator):
        return copy(estimator)


class Shell(KernelParameter, ABC):
    """An estimator that is fitted to a table; regressors and classifiers read it differently (``_read``)."""

    @takes_collections
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and y: targets (n,) or (n, p), or labels (n,). For weights see the class.

        X may be a scan, which brings y and weights along, or a Dask collection, as may y and weights.
        """
        self._validate_params()
        with all_or_nothing(self):
            self._fit(self._read(X, y, sample_weight, first=True))
        return self

    @abstractmethod
    def _read(self, X: Any, y: Any, sample_weight: Any, *, first: bool, classes: Any = None) -> ArrayTable:
        """Check the arguments of a first or a later call, and make a table of them."""

    @abstractmethod
    def _fit(self, table: ArrayTable) -> None:
        """Fit to a table that was checked."""

    @property
    def _n_outputs(self) -> int:
        return len(self._mean_expansion().intercept)

    def _mean_expansion(self) -> KernelExpansion:
        """The model; without its variance, where that is computed on demand."""
        expansion: KernelExpansion = self.expansion_
        return expansion

    def _evaluate_rows(self, rows: Rows) -> FloatArray:
        return self._mean_expansion().evaluate(rows, executor=make_executor(self))

    def _calibration(self) -> Calibration | None:
        """Leave-one-out residuals of a sample of the rows, where the method gives them."""
        return None

    def _check_calibration(self) -> None:
        """Warn if rows that are left out are predicted worse than by the mean of the others."""
        calibration = self._calibration()
        if calibration is None or len(calibration.residuals) < _FEW:
            return
        share = calibration.relative_error()
        if calibration.copied > _COPIED:
            warn(
                "sample_weight has whole numbers, which count equal rows. Rows that are left out with all their copies "
                f"are predicted with {np.sqrt(calibration.copied):.2g} times the error of those whose copies remain: "
                "noise, spread and intervals are right only for more such copies. If weights say how much rows matter, "
                "divide them by the largest.",
                GeneralisationWarning,
            )
        if share > _WORSE:
            chosen = getattr(self, "noise", "auto") in ("auto", "loo")
            first = "S" if chosen else "Let noise='auto' or noise='loo' choose the noise, s"
            warn(
                f"rows that are left out are predicted with {np.sqrt(share):.3g} times the error of the mean of the "
                f"others: the model does not generalise. {first}cale the features, or choose another kernel, length "
                "scale or method.",
                GeneralisationWarning,
            )


def read_rows(estimator: Any, X: Any, *, reset: bool) -> Rows:
    """Check rows given as an array, a data frame or a source of rows; remember (``reset``) or compare their width."""
    if isinstance(X, Source):
        return rows_of_source(estimator, X, reset=reset)
    if not isinstance(X, Rows):
        table = check_table(estimator, X, reset=reset)
        return SparseRows(table) if issparse(table) else ArrayRows(table, checked=not isinstance(X, np.memmap))
    if reset:
        estimator.n_features_in_ = X.n_features
        vars(estimator).pop("feature_names_in_", None)  # a source of rows has no names
    elif X.n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {X.n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
    return X


def make_executor(estimator: Any) -> Executor:
    """The executor in use, or threads as ``n_jobs`` and ``verbose`` ask for."""
    executor: Executor | None = given_executor()
    return Threads(estimator.n_jobs, verbose=estimator.verbose) if executor is None else executor


BASIS_CONSTRAINTS: dict[str, Any] = {
    "kernel": "no_validation",  # checked, with a message of its own, by as_kernel
    "n_basis": [Interval(Integral, 1, None, closed="left")],
    "basis": "no_validation",  # checked, with a message of its own, by choose_basis
    "intercept": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [None, Integral],
    "verbose": ["verbose"],
}


@parameters
class OnBasis(KernelParameter, ABC):
    """An estimator with these parameters and, once fitted, a ``_frame``."""

    kernel: Any = field(default="gaussian", kw_only=False)
    n_basis: int = 500
    basis: Any = "uniform"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0

    @property
    @abstractmethod
    def _frame(self) -> Frame:
        """The basis and the factor of its kernel matrix."""

    def _choose_frame(self, table: ArrayTable, dtype: np.dtype[Any], *, steady: bool = False) -> Frame:
        """Choose the basis; ``steady`` if differences k(x, x) - |v|² will be taken (see ``Frame.build``)."""
        random_state = check_random_state(self.random_state)
        intercept, executor = bool(getattr(self, "intercept", False)), make_executor(self)
        noise: Any = "auto" if getattr(self, "fit_noise", False) else getattr(self, "_total_noise", "auto")
        kernel = fitted_kernel(self.kernel, table, random_state, noise=noise, intercept=intercept, executor=executor)
        basis = choose_basis(
            self.basis, table.rows, lambda: table.shifted(target_shift(table, intercept=intercept)).targets,
            kernel, int(self.n_basis),
            weights=table.weights, random_state=random_state, executor=executor,
        )  # fmt: skip
        return Frame.build(kernel, basis, dtype, steady=steady)

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its parameters as numbers."""
        check_is_fitted(self)
        return self._frame.kernel

    @property
    def basis_(self) -> FloatArray:
        """Basis points that are in use, shape (rank, d); read-only, as the model is."""
        check_is_fitted(self)
        points = self._frame.basis.points.view()
        points.flags.writeable = False
        return points

    @property
    def basis_index_(self) -> Any:
        """Row numbers of the basis points (in the first rows seen), or None if they were given."""
        check_is_fitted(self)
        return self._frame.basis.index

    @property
    def basis_note_(self) -> str:
        """Why there are fewer basis points than were asked for, or an empty string."""
        check_is_fitted(self)
        return self._frame.basis.note

    @property
    def basis_residual_trace_(self) -> float | None:
        """Share of the trace of the kernel matrix that the basis leaves, if the strategy knows it."""
        check_is_fitted(self)
        return self._frame.basis.residual_trace

    @property
    def rank_(self) -> int:
        """Numerical rank of the basis: points that the others span to rounding are left out."""
        return len(self.basis_)


class Mergeable(Shell):
    """An estimator that can take in more rows, and what another one has seen."""

    @takes_collections
    def _add_rows(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        """``partial_fit``, with the classes that the user names."""
        self._validate_params()
        with all_or_nothing(self):
            self._partial_fit(self._read(X, y, sample_weight, first=not is_fitted(self), classes=classes))
        return self

    @abstractmethod
    def _partial_fit(self, table: ArrayTable) -> None:
        """Add the rows of a table that was checked."""

    def merge(self, other: Self) -> Self:
        """Add the rows that another model has seen; exact, as if all had been fitted here.

        Parameters
        ----------
        other : estimator of the same class
            Fitted with the same kernel and basis: fit the first with any basis, the others with
            ``basis=first.basis_`` and ``kernel=first.kernel_``.

        Returns
        -------
        self
        """
        self._validate_params()
        check_mergeable(self, other)
        other = snapshot(other)
        with all_or_nothing(self):
            self._check_mergeable(other)
            self._merge(other)
        return self

    @abstractmethod
    def _check_mergeable(self, other: Self) -> None:
        """Refuse one that cannot be merged with this."""

    @abstractmethod
    def _merge(self, other: Self) -> None:
        """Take in the other's sums."""


class SummedOnBasis(OnBasis, Mergeable):
    """An estimator on a basis whose state is one summary, of sums over the rows seen, which is replaced as a whole."""

    _summary: Any

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_summary")

    @property
    def _frame(self) -> Frame:
        frame: Frame = self._summary.frame
        return frame

    @property
    def _n_outputs(self) -> int:
        return len(self._summary.target_shift)

    def check_stored(self) -> None:
        """Refuse outputs and features that are not those of the summary."""
        n_features = self._frame.basis.points.shape[1]
        check_estimator(self, n_outputs=self._n_outputs, n_features=n_features)

    def _check_mergeable(self, other: Self) -> None:
        check_same_frame(self._frame, other._frame)
        check_same_outputs(self._n_outputs, other._n_outputs)


def check_mergeable(mine: Any, theirs: Any) -> None:
    """Refuse to merge with an estimator of another type, with one of other classes, or with one that is not fitted."""
    check_is_fitted(mine)
    if type(theirs) is not type(mine):
        raise ValueError(f"cannot merge a {type(theirs).__name__} into a {type(mine).__name__}.")
    check_is_fitted(theirs)
    if hasattr(mine, "classes_") and not np.array_equal(mine.classes_, theirs.classes_):
        msg = f"cannot merge models with different classes: {mine.classes_.tolist()}, {theirs.classes_.tolist()}."
        raise ValueError(msg)


def check_same_frame(mine: Frame, theirs: Frame) -> None:
    """Refuse to merge what was summed on different bases."""
    if not mine.kernel.equals(theirs.kernel):
        raise ValueError(
            f"cannot merge models with different kernels, {mine.kernel} and {theirs.kernel}: "
            "fit the second with kernel=first.kernel_."
        )
    if not mine.same_as(theirs):
        raise ValueError(
            "cannot merge models with different bases: fit the second with basis=first.basis_ "
            "(and rows of the same dtype)."
        )


def check_same_outputs(mine: int, theirs: int) -> None:
    """Refuse to merge models of different targets."""
    if mine != theirs:
        raise ValueError(f"cannot merge models with different numbers of outputs, {mine} and {theirs}.")
