"""The exact system by conjugate gradients, without its matrix."""

from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer._validation import check_random_state
from mercer.engine import ArrayTable, Executor, Features, Rows, kernel_times, normal_statistics, transposed_times
from mercer.kernels import Kernel
from mercer.solvers.conjugate_gradient import IterativeSolution, conjugate_gradient
from mercer.solvers.dense import pivoted_cholesky
from mercer.solvers.preconditioners import NystromPreconditioner

_RANK_TOLERANCE = 1e-10  # pivots of the preconditioner's matrix below this add nothing to it
_LEAST_NOISE = 1e-9  # λ/ω in the preconditioner, beside k(x, x): its differences then keep about seven digits


def solve_matrix_free(
    rows: Rows,
    kernel: Kernel,
    points: FloatArray,
    right: FloatArray,
    *,
    noise: float,
    weights: FloatArray,
    tol: float,
    max_iter: int,
    random_state: Any,
    executor: Executor,
) -> IterativeSolution:
    """Solve (K + λW⁻¹) x = right, with K = k(rows, points) computed tile by tile in every iteration.

    Cost: n² kernel values an iteration; memory of a tile per thread and a few vectors.
    """
    diagonal = (noise / weights)[:, np.newaxis]

    def apply(vectors: FloatArray) -> FloatArray:
        return kernel_times(rows, kernel, points, vectors, executor=executor) + diagonal * vectors

    # A low-rank preconditioner on points drawn at random; its own products are tiled like all others.
    n = len(points)
    rank = min(n, 100 + int(4 * np.sqrt(n)))  # a pass over n·rank values stays small beside one over n²
    chosen = np.sort(check_random_state(random_state).permutation(n)[:rank])
    block = np.array(kernel.bind(points[chosen]).tile(rows.take(chosen)), dtype=np.float64, order="C")
    factor = pivoted_cholesky(block, tolerance=_RANK_TOLERANCE)
    basis, lower = points[chosen[factor.order]], factor.lower
    # Where λ/ω is tiny beside k(x, x) the preconditioner would be the difference of two numbers 1/λ times as large.
    trusted = np.minimum(weights, noise / max(_LEAST_NOISE * float(np.max(np.diagonal(block))), 1e-300))
    table = ArrayTable(rows, weights=trusted)
    precondition = NystromPreconditioner(
        times=lambda vectors: kernel_times(rows, kernel, basis, vectors, executor=executor),
        transposed_times=lambda vectors: transposed_times(rows, kernel, basis, vectors, executor=executor),
        lower=lower,
        gram=normal_statistics(table, Features(kernel, basis, lower=lower), executor=executor).gram,
        noise=noise,
        weights=trusted,
    )
    verbose = executor.verbose
    return conjugate_gradient(apply, right, precondition=precondition, tol=tol, max_iter=max_iter, verbose=verbose)
