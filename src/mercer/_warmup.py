"""Compile ahead of use: small fits of everything that has compiled code."""

import inspect
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier

import mercer
from mercer._jit import Compiled, compile_log
from mercer._typing import FloatArray
from mercer.kernels import CompactGaussian, Gaussian, Kernel, Matern, RationalQuadratic, Wendland

_ROWS, _CROWDED_ROWS = 60, 2048  # with fewer rows the search for neighbours does not try all distances
# With compiled code; a search for their parameters needs their gradients, too.
_KERNELS: tuple[Kernel, ...] = (
    Gaussian(),
    *(Matern(nu=nu) for nu in (0.5, 1.5, 2.5)),
    *(RationalQuadratic(shape=shape) for shape in (1.0, 0.5)),
    *(CompactGaussian(exponent=exponent) for exponent in (None, 2.5)),
    *(Wendland(smoothness=smoothness) for smoothness in (0, 1)),
)
_USES = ("predict", "predict_proba", "decision_function", "transform", "score_samples")


@dataclass(frozen=True)
class WarmupReport:
    """What ``warmup`` has compiled.

    Attributes
    ----------
    compiled : tuple of (name, seconds)
        Functions in the order in which they were compiled, and how long each took with those that it calls. Empty if
        everything was found on disk.
    """

    compiled: tuple[Compiled, ...]

    @property
    def seconds(self) -> float:
        """Time spent on compiling, in all."""
        return sum(compiled.seconds for compiled in self.compiled)

    def __str__(self) -> str:
        if not self.compiled:
            return "mercer: nothing to compile, all code was found on disk"
        lines = [f"{compiled.seconds:7.2f} s  {compiled.name}" for compiled in self.compiled]
        return "\n".join([*lines, f"{self.seconds:7.2f} s  in all, for {len(self.compiled)} functions"])


def warmup() -> WarmupReport:
    """Compile everything that the estimators use, ahead of their first use.

    Code is compiled for this machine and kept on disk: a second call, in this process or another one, compiles nothing.
    It takes about half a minute. Kernels that are Python functions are not compiled.

    Returns
    -------
    WarmupReport
        What was compiled, and how long it took. Printed, it is a table.

    Examples
    --------
    >>> import mercer
    >>> mercer.warmup().seconds >= 0.0
    True
    """
    before = len(compile_log.compiled)
    public = [getattr(mercer, name) for name in mercer.__all__]
    estimators = [member for member in public if inspect.isclass(member) and issubclass(member, BaseEstimator)]
    with compile_log.quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tiny models, which nobody sees
        for rows in _tables():
            for estimator in estimators:
                _use(estimator(), rows, np.sin(3.0 * rows[:, 0]))
        for rows in _tables(far=1e6):
            for kernel in _KERNELS:
                _use(mercer.PseudoInputRegressor(kernel, n_basis=5), rows, np.sin(3.0 * rows[:, 0]))
        # What compact kernels use for many rows, by their number and density; and compression.
        rows = np.random.default_rng(0).uniform(-1.0, 1.0, (_CROWDED_ROWS, 6))
        for preconditioner in ("jacobi", "incomplete"):
            _use(mercer.CompactRegressor(solver="cg", preconditioner=preconditioner, tol=0.5), rows, rows[:, 0])
        model = mercer.NystromRegressor(n_basis=20).fit(rows[:_ROWS], rows[:_ROWS, 0])
        mercer.compress(model, n_vectors=3).predict(rows)
    return WarmupReport(tuple(compile_log.compiled[before:]))


def _tables(far: float = 1.0) -> Iterator[FloatArray]:
    """Rows of each kind that code is compiled for: of both types, and such as may not be written.

    The first row is that far away: kernel values of rows of large norm are computed otherwise.
    """
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (_ROWS, 2))
    rows[0] = far
    for dtype in (np.float64, np.float32):
        for is_writable in (True, False):
            table: FloatArray = rows.astype(dtype)
            table.setflags(write=is_writable)
            yield table


def _use(estimator: Any, rows: FloatArray, targets: FloatArray) -> None:
    """Fit an estimator and call whatever it can do."""
    if "max_iter" in estimator.get_params():
        estimator.set_params(max_iter=2)
    estimator.fit(rows, targets > 0 if is_classifier(estimator) else targets)
    for name in _USES:
        if hasattr(estimator, name):
            getattr(estimator, name)(rows)
    if hasattr(estimator, "predict") and "return_std" in inspect.signature(estimator.predict).parameters:
        estimator.predict(rows, return_std=True)
