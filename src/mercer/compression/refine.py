r"""All vectors together: the document's global descent, and ours.

==========  ====================================  =====================================
optimiser   coefficients                          method
==========  ====================================  =====================================
"lbfgs"     eliminated                            L-BFGS (SciPy)
"irprop"    eliminated                            iRprop⁺
"joint"     moved along with the vectors          iRprop⁺, as in the document
==========  ====================================  =====================================
"""

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from mercer._typing import FloatArray
from mercer.compression.distance import Distance, Evaluation
from mercer.compression.irprop import irprop

_MEMORY = 20  # pairs of steps and gradients that L-BFGS keeps
_ROUNDING = 1e-13  # share of |f|² at which a distance is nothing but rounding
_PATIENCE = 20  # steps over which a gain is judged: single ones may be short


class Refinement:
    """The vectors (m, d) of the least distance so far, and how they were reached."""

    def __init__(self, distance: Distance, vectors: FloatArray) -> None:
        self.distance, self.vectors, self.evaluation = distance, vectors, distance.solve(vectors)
        self.distances: list[float] = []  # after each step that lowered the distance; the start is not among them
        self.n_iter = 0

    def look(self, vectors: FloatArray, evaluation: Evaluation) -> None:
        """Accept vectors if they are closer."""
        if evaluation.distance < self.evaluation.distance:
            self.vectors, self.evaluation = vectors.copy(), evaluation
            self.distances.append(evaluation.distance)


def refine(
    distance: Distance, vectors: FloatArray, *, unit: FloatArray, optimiser: str, max_iter: int, tol: float
) -> Refinement:
    """Descend from given vectors (m, d), of which ``unit`` (d,) is a large step; the result is never farther off.

    It ends when 20 steps have together gained less than the share ``tol`` of what is minimised.
    """
    record, settled = Refinement(distance, vectors), False
    if max_iter > 0 and record.evaluation.distance > _ROUNDING * distance.norm:
        if optimiser == "lbfgs":
            settled = _lbfgs(record, unit, max_iter, tol)
        # Line searches fail at kinks of rough kernels, signs of slopes do not.
        if not settled and record.n_iter < max_iter:
            _irprop(record, unit, max_iter - record.n_iter, tol, joint=optimiser == "joint")
    return record


def _lbfgs(record: Refinement, unit: FloatArray, max_iter: int, tol: float) -> bool:
    """Whether the distance had settled when the steps ended."""
    distance, shape, ridge = record.distance, record.vectors.shape, record.distance.penalty(record.evaluation)
    first = max(record.evaluation.value, np.finfo(np.float64).tiny)
    last: tuple[bytes, FloatArray, Evaluation] = b"", record.vectors, record.evaluation

    def function(x: FloatArray) -> tuple[float, FloatArray]:
        nonlocal last
        vectors = x.reshape(shape) * unit
        evaluation = distance.eliminated(vectors, ridge)
        last = x.tobytes(), vectors, evaluation
        return evaluation.value / first, (evaluation.by_vectors * unit).ravel() / first

    values: list[float] = []
    settled = False

    def callback(intermediate_result: OptimizeResult) -> None:
        nonlocal settled
        at, vectors, evaluation = last
        if at == intermediate_result.x.tobytes():
            record.look(vectors, evaluation)
        values.append(float(intermediate_result.fun))
        settled = len(values) > _PATIENCE and values[-1 - _PATIENCE] - values[-1] <= tol * values[-1]
        if settled:
            raise StopIteration

    options = {"maxiter": max_iter, "maxcor": _MEMORY, "ftol": 0.0, "gtol": 0.0, "maxfun": 2 * max_iter + 20}
    start = (record.vectors / unit).ravel()
    found = minimize(function, start, jac=True, method="L-BFGS-B", callback=callback, options=options)
    record.n_iter = int(found.nit)
    return settled


def _irprop(record: Refinement, unit: FloatArray, max_iter: int, tol: float, *, joint: bool) -> None:
    """``joint`` moves coefficients, in units of their sizes, along with the vectors."""
    distance, shape, coefficients = record.distance, record.vectors.shape, record.evaluation.coefficients
    ridge, start, units = distance.penalty(record.evaluation), record.vectors.ravel(), np.tile(unit, shape[0])
    if joint:
        sizes = np.broadcast_to(np.sqrt(np.mean(coefficients**2, axis=0)), coefficients.shape)
        units = np.concatenate([units, np.where(sizes > 0, sizes, 1.0).ravel()])
        start = np.concatenate([start, coefficients.ravel()])

    def function(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        moved, others = np.split(x[0], [record.vectors.size])
        vectors = moved.reshape(shape)
        if joint:
            evaluation = distance.joint(vectors, others.reshape(coefficients.shape))
        else:
            evaluation = distance.eliminated(vectors, ridge)
        record.look(vectors, evaluation)
        gradient = np.concatenate([evaluation.by_vectors.ravel(), evaluation.by_coefficients.ravel()])
        return np.array([evaluation.value]), gradient[np.newaxis]

    found = irprop(function, start[np.newaxis], unit=units, max_iter=max_iter, tol=tol, patience=_PATIENCE)
    record.n_iter += found.n_iter
    if joint:  # coefficients that were moved along are not yet the best ones
        record.look(record.vectors, distance.solve(record.vectors))
