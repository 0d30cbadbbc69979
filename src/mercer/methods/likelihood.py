r"""Parameters of a kernel by the marginal likelihood of an exact model on a sample of the rows.

==================  ==================  ==========  =================================================================
symbol              code                shape       meaning
==================  ==================  ==========  =================================================================
H                   ``lower`` (LLᵀ)     (n, n)      K + λW⁻¹
α, η                ``alpha``, ``eta``  (n, p)      M⁻¹y and H⁻¹1; see ``exact``
q                   ``squares``         (p,)        yᵀα
G                   ``by_matrix``       (n, n)      derivative of the objective by K
==================  ==================  ==========  =================================================================

The amplitude σ² has its best value in closed form, q/n, so that the objective is, up to constants,

.. math:: \tfrac n2\sum_o\log q_o + \tfrac p2(\log|H| + \log 1^\top\eta + (N - n)\log\lambda),

N being the rows counted by their weights; with an intercept, which has a flat prior, one less of each. Its derivative
by K is :math:`G = \tfrac p2(H^{-1} - \eta\eta^\top/1^\top\eta) - \tfrac n2\sum_o\alpha_o\alpha_o^\top/q_o`.
(Rasmussen and Williams 2006, sections 5.4 and 2.7.)
"""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

from mercer._typing import FloatArray
from mercer.engine import number_of, unit_of
from mercer.kernels import Kernel
from mercer.methods.exact import solve_lssvm
from mercer.solvers.dense import mirror

# Rows that decide: a step of the search takes about a tenth of a second with a thousand.
DECIDING_ROWS = 1000
_WIDEST = 12.0  # the largest logarithm of a parameter, relative to its start: it switches a feature off
_NARROWEST = -5.0
_AMPLITUDE = 9.2  # the same of an amplitude: more than 1e4 times the other terms, these lose their digits
_NOISES = (-16.0, 6.0)  # logarithms of λ, relative to k(x, x), of an ordinary row
_FAILED = 1e25  # the objective where H is not positive definite: the search turns back


@dataclass(frozen=True)
class Likeliest:
    """The parameters that were found."""

    kernel: Kernel
    noise: float  # λ, in units of the kernel's own amplitude
    log_likelihood: float  # with the logarithm of the prior, if there is one
    stopped: bool  # by the deadline


class _Stopped(Exception):  # noqa: N818  no error: time is up
    pass


def maximise_likelihood(
    kernel: Kernel,
    rows: FloatArray,
    targets: FloatArray,
    weights: FloatArray,
    *,
    counted: bool = True,
    noise: float = 0.1,
    intercept: bool = True,
    names: Collection[str] | None = None,
    fit_noise: bool = True,
    spread: float | None = None,
    max_iter: int = 60,
    deadline: float = np.inf,
    say: Callable[[str], None] | None = None,
) -> Likeliest:
    """Search for the kernel's parameters and the noise of the largest marginal likelihood, by L-BFGS.

    ``names`` are the parameters that are searched; None for all but the first amplitude: that of the targets follows
    in closed form, and other terms of a sum are relative to it. The noise, in units of the mean of k(x, x), is where
    the search starts, or with ``fit_noise=False`` what it is. With a ``spread``, logarithms of parameters that are
    arrays have a normal prior of this standard deviation about their mean, so that many features can be told apart only
    by what the targets say of them. Stops at the best so far when ``time.monotonic()`` passes
    the deadline. Cost: 1.3·n³ operations and one n × n matrix of G for each step.
    """
    start = dict(kernel.get_log_parameters())
    if names is None:
        start.pop(next((name for name in start if name.endswith("amplitude")), ""), None)
    else:
        start = {name: start[name] for name in names}
    sizes = [np.size(value) for value in start.values()]
    level = float(np.mean(kernel.diagonal(rows)))
    number = number_of(weights, counted=counted)
    best: list[tuple[float, FloatArray]] = []

    def unpack(point: FloatArray) -> tuple[Kernel, float]:
        *parts, rest = np.split(point, np.cumsum(sizes))
        values = {name: part.reshape(np.shape(start[name])) for name, part in zip(start, parts, strict=True)}
        return kernel.with_log_parameters(values), level * (float(np.exp(rest[0])) if fit_noise else noise)

    def objective(point: FloatArray) -> tuple[float, FloatArray]:
        if time.monotonic() > deadline and best:
            raise _Stopped
        value, gradient = _objective(
            *unpack(point), list(start), rows, targets, weights, n_targets=number, intercept=intercept
        )
        if spread is not None and value < _FAILED:
            value, gradient = _with_prior(value, gradient, point, sizes, spread)
        if not best or value < best[0][0]:
            best[:] = [(value, np.array(point))]
        return value, gradient if fit_noise else gradient[:-1]

    def tell(_: FloatArray) -> None:
        if say is not None:
            say(f"log likelihood {-best[0][0]:.6g}")

    flat = np.concatenate([np.ravel(value) for value in start.values()])
    limits = [_limits(name) for name, size in zip(start, sizes, strict=True) for _ in range(size)]
    bounds = [(each + low, each + high) for each, (low, high) in zip(flat, limits, strict=True)]
    if fit_noise:
        unit = float(np.log(unit_of(weights, counted=counted)))
        low, high = _NOISES[0] + unit, _NOISES[1] + unit
        flat, bounds = np.append(flat, np.clip(np.log(noise), low, high)), [*bounds, (low, high)]
    options = {"maxiter": max_iter}
    stopped = True
    with suppress(_Stopped):
        minimize(objective, flat, jac=True, method="L-BFGS-B", bounds=bounds, callback=tell, options=options)
        stopped = False
    found, chosen = unpack(best[0][1])
    return Likeliest(found, chosen, -best[0][0], stopped)


def _with_prior(
    value: float, gradient: FloatArray, point: FloatArray, sizes: list[int], spread: float
) -> tuple[float, FloatArray]:
    """Objective and gradient with Σ(u_j - ū)²/2s² added, over the logarithms u of each array."""
    ends = np.cumsum(sizes)
    for start, end in zip(ends - sizes, ends, strict=True):
        apart = point[start:end] - np.mean(point[start:end])
        value += float(apart @ apart) / (2 * spread**2)
        gradient[start:end] += apart / spread**2
    return value, gradient


def _limits(name: str) -> tuple[float, float]:
    """How far the logarithm of a parameter may move from its start."""
    return (-_AMPLITUDE, _AMPLITUDE) if name.endswith("amplitude") else (_NARROWEST, _WIDEST)


def _objective(
    kernel: Kernel,
    noise: float,
    names: list[str],
    rows: FloatArray,
    targets: FloatArray,
    weights: FloatArray,
    *,
    n_targets: float,
    intercept: bool,
) -> tuple[float, FloatArray]:
    """The negative log-likelihood, and its gradient by log-parameters and log λ."""
    n, p = targets.shape
    matrix = np.asfortranarray(kernel(rows))
    matrix[np.diag_indices(n)] += noise / weights
    lower, info = lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    if info:
        return _FAILED, np.zeros(sum(np.size(value) for value in _values(kernel, names)) + 1)
    solution = solve_lssvm(lambda right: lapack.dpotrs(lower, right, lower=1)[0], targets, weights, intercept=intercept)
    alpha, eta = solution.coefficients, solution.eta
    squares = np.maximum(np.sum((targets - solution.intercept) * alpha, axis=0), np.finfo(np.float64).tiny)
    freedom = n_targets - intercept
    value = np.sum(np.log(squares / freedom) + np.log(2 * np.pi * np.e)) * freedom / 2
    value += p * (np.sum(np.log(np.diagonal(lower))) + (n_targets - n) * np.log(noise) / 2)
    # G = p/2 (H⁻¹ - ηηᵀ/1ᵀη) - n/2 Σ ααᵀ/q
    by_matrix, _ = lapack.dpotri(lower, lower=1, overwrite_c=1)
    mirror(by_matrix.T)
    if eta is not None:
        total = np.sum(eta)
        value += p * np.log(total) / 2
        by_matrix -= np.outer(eta, eta / total)
    by_matrix *= p / 2
    by_matrix -= (alpha * (freedom / 2 / squares)) @ alpha.T
    by_noise = noise * float(np.sum(np.diagonal(by_matrix) / weights)) + p * (n_targets - n) / 2
    gradients = kernel.parameter_gradient(rows, rows, by_matrix)
    return float(value), np.concatenate([*(np.ravel(gradients[name]) for name in names), [by_noise]])


def _values(kernel: Kernel, names: list[str]) -> list[FloatArray]:
    parameters = kernel.get_log_parameters()
    return [parameters[name] for name in names]
