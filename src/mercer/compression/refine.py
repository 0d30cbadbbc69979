r"""All vectors together: the document's global descent, and ours.

==========  ====================================  =====================================
optimiser   coefficients                          method
==========  ====================================  =====================================
"lbfgs"     eliminated                            L-BFGS (SciPy)
"irprop"    eliminated                            iRprop⁺
"joint"     moved along with the vectors          iRprop⁺, as in the document
==========  ====================================  =====================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from mercer._typing import FloatArray, IntArray
from mercer.compression.distance import Distance, Evaluation
from mercer.compression.irprop import irprop

__all__ = ["OPTIMISERS", "Refinement", "refine"]

OPTIMISERS = ("lbfgs", "irprop", "joint")
_MEMORY = 20  # pairs of steps and gradients that L-BFGS keeps
_ROUNDING = 1e-13  # share of |f|² at which a distance is nothing but rounding
_PATIENCE = 20  # steps over which a gain is judged: single ones may be short


@dataclass(frozen=True)
class Refinement:
    """Where the descent ended.

    Attributes
    ----------
    vectors : array (m, d)
    evaluation : Evaluation
        There, without gradients.
    distances : array
        After each step that lowered the distance; the start is not among them.
    n_iter : int
    """

    vectors: FloatArray
    evaluation: Evaluation
    distances: FloatArray
    n_iter: int


def refine(
    distance: Distance, vectors: FloatArray, *, unit: FloatArray, optimiser: str, max_iter: int, tol: float
) -> Refinement:
    """Descend from given vectors; the result is never farther than the start.

    Parameters
    ----------
    distance : Distance
    vectors : array (m, d)
    unit : array (d,)
        A large step of a vector, by feature.
    optimiser : {"lbfgs", "irprop", "joint"}
    max_iter : int
    tol : float
        Stop when 20 steps have together gained less than this share of what is minimised.
    """
    start = distance.solve(vectors)
    record = _Record(vectors, start)
    if max_iter == 0 or start.distance <= _ROUNDING * distance.norm:
        return Refinement(vectors, start, np.empty(0), 0)
    if optimiser == "lbfgs":
        n_iter, stuck = _lbfgs(distance, record, unit, max_iter, tol)
        if stuck and n_iter < max_iter:  # line searches fail at the kinks of rough kernels, signs of derivatives do not
            n_iter += _irprop(distance, record, unit, max_iter - n_iter, tol)
    elif optimiser == "irprop":
        n_iter = _irprop(distance, record, unit, max_iter, tol)
    else:
        n_iter = _joint(distance, record, unit, max_iter, tol)
    # Coefficients that were moved along are not yet the best ones.
    last = distance.solve(record.vectors) if optimiser == "joint" else record.evaluation
    if optimiser == "joint" and last.distance < record.evaluation.distance:
        record.look(record.vectors, last)
    return Refinement(record.vectors, record.evaluation, np.array(record.curve), n_iter)


class _Record:
    """The least distance so far, and how it was reached."""

    def __init__(self, vectors: FloatArray, evaluation: Evaluation) -> None:
        self.vectors, self.evaluation = vectors, evaluation
        self.curve: list[float] = []

    def look(self, vectors: FloatArray, evaluation: Evaluation) -> None:
        """Accept vectors if they are closer."""
        if evaluation.distance < self.evaluation.distance:
            self.vectors, self.evaluation = vectors.copy(), evaluation
            self.curve.append(evaluation.distance)


def _lbfgs(distance: Distance, record: _Record, unit: FloatArray, max_iter: int, tol: float) -> tuple[int, bool]:
    """Number of steps, and whether they ended before the distance had settled."""
    shape, ridge = record.vectors.shape, distance.penalty(record.evaluation)
    first = max(record.evaluation.value, np.finfo(np.float64).tiny)
    seen: dict[bytes, tuple[FloatArray, Evaluation]] = {}

    def function(x: FloatArray) -> tuple[float, FloatArray]:
        vectors = x.reshape(shape) * unit
        evaluation = distance.eliminated(vectors, ridge)
        seen.clear()
        seen[x.tobytes()] = vectors, evaluation
        return evaluation.value / first, (evaluation.by_vectors * unit).ravel() / first

    values: list[float] = []
    settled = False

    def callback(intermediate_result: OptimizeResult) -> None:
        nonlocal settled
        key = intermediate_result.x.tobytes()
        if key in seen:
            record.look(*seen[key])
        values.append(float(intermediate_result.fun))
        settled = len(values) > _PATIENCE and values[-1 - _PATIENCE] - values[-1] <= tol * values[-1]
        if settled:
            raise StopIteration

    options = {"maxiter": max_iter, "maxcor": _MEMORY, "ftol": 0.0, "gtol": 0.0, "maxfun": 2 * max_iter + 20}
    start = (record.vectors / unit).ravel()
    found = minimize(function, start, jac=True, method="L-BFGS-B", callback=callback, options=options)
    return int(found.nit), not settled


def _irprop(distance: Distance, record: _Record, unit: FloatArray, max_iter: int, tol: float) -> int:
    shape, ridge = record.vectors.shape, distance.penalty(record.evaluation)

    def function(x: FloatArray, _problems: IntArray) -> tuple[FloatArray, FloatArray]:
        vectors = x[0].reshape(shape)
        evaluation = distance.eliminated(vectors, ridge)
        record.look(vectors, evaluation)
        return np.array([evaluation.value]), evaluation.by_vectors.reshape(1, -1)

    return _run_irprop(function, record.vectors.ravel(), np.tile(unit, shape[0]), max_iter, tol)


def _joint(distance: Distance, record: _Record, unit: FloatArray, max_iter: int, tol: float) -> int:
    (m, d), first = record.vectors.shape, record.evaluation.coefficients

    def function(x: FloatArray, _problems: IntArray) -> tuple[FloatArray, FloatArray]:
        vectors, coefficients = x[0, : m * d].reshape(m, d), x[0, m * d :].reshape(first.shape)
        evaluation = distance.joint(vectors, coefficients)
        record.look(vectors, evaluation)
        gradient = np.concatenate([evaluation.by_vectors.ravel(), evaluation.by_coefficients.ravel()])
        return np.array([evaluation.value]), gradient[np.newaxis]

    sizes = np.broadcast_to(np.sqrt(np.mean(first**2, axis=0)), first.shape)
    units = np.concatenate([np.tile(unit, m), np.where(sizes > 0, sizes, 1.0).ravel()])
    return _run_irprop(function, np.concatenate([record.vectors.ravel(), first.ravel()]), units, max_iter, tol)


def _run_irprop(
    function: Callable[[FloatArray, IntArray], tuple[FloatArray, FloatArray]],
    start: FloatArray,
    unit: FloatArray,
    max_iter: int,
    tol: float,
) -> int:
    return irprop(function, start[np.newaxis], unit=unit, max_iter=max_iter, tol=tol, patience=_PATIENCE).n_iter
