"""Pseudo-inputs: what a step of the search costs, and how good the bound is that it ends with, beside GPyTorch's."""

import time
import warnings
from typing import Any

import numpy as np

from benchmarks.clock import race
from mercer import NystromRegressor, PseudoInputRegressor
from mercer.datasets import load_abalone, make_waves
from mercer.engine import ArrayTable, Threads, as_rows, blas_threads
from mercer.kernels import Gaussian
from mercer.methods.sparse_objective import SparseObjective
from mercer.reports.table import format_table

NOISE, STEPS = 0.05, 200


def report(rounds: int) -> str:
    """Run and describe the results."""
    return "\n\n".join([_step(max(rounds, 7)), _bounds()])


def _waves(n: int) -> tuple[Any, Any]:
    X, y = make_waves(n, n_features=8, noise=0.1, random_state=0)
    return X, (y - np.mean(y)) / np.std(y)


def _step(rounds: int) -> str:
    X, y = _waves(10_000)
    points, rows = X[:200].copy(), []
    for name, kernel in (("one length scale", Gaussian(2.0)), ("one per input", Gaussian(np.full(8, 2.0)))):
        objectives = {
            kind: SparseObjective(ArrayTable(as_rows(X), y[:, np.newaxis]), kind, Threads()) for kind in ("vfe", "fitc")
        }

        def step(kind: Any, kernel: Any = kernel, objectives: Any = objectives) -> None:
            objectives[kind].value_and_gradient(kernel, points, NOISE)

        with blas_threads(1):  # as the search does
            for kind in objectives:
                step(kind)
        contestants = {
            "Nyström fit": lambda kernel=kernel: NystromRegressor(
                kernel, basis=points, noise=NOISE, intercept=False
            ).fit(X, y),
            "vfe": lambda: _held(step, "vfe"),
            "fitc": lambda: _held(step, "fitc"),
        }
        contestants["Nyström fit"]()
        times = race(contestants, rounds)
        rows += [[who, name, times.best(who), times.ratio(who, "Nyström fit")] for who in contestants]
    return format_table(["n = 10 000, m = 200, d = 8", "kernel", "s (best)", "times the fit (median)"], rows)


def _held(step: Any, kind: str) -> None:
    with blas_threads(1):
        step(kind)


def _bounds() -> str:
    X, y = load_abalone()
    X, y = (X - np.mean(X, axis=0)) / np.std(X, axis=0), (y - np.mean(y)) / np.std(y)
    try:
        import gpytorch  # noqa: F401
    except ImportError:
        peers: dict[str, Any] = {}
        note = "GPyTorch is not installed (`pip install mercer[peers]`): no comparison."
    else:
        peers = {"GPyTorch, L-BFGS": _lbfgs, "GPyTorch, Adam at 0.05": _adam}
        note = f"{STEPS} steps each, but for mercer's and L-BFGS's own tests of convergence."
    rows = []
    for name, (rows_, targets), m in (("abalone", (X, y), 50), ("waves, 10 000", _waves(10_000), 200)):
        d = rows_.shape[1]
        start = rows_[np.random.default_rng(0).choice(len(rows_), m, replace=False)]
        objective = SparseObjective(ArrayTable(as_rows(rows_), targets[:, np.newaxis]), "vfe", Threads())
        for who, fit in {"mercer": _mercer, **peers}.items():
            begin = time.perf_counter()
            scales, amplitude, noise, points = fit(rows_, targets, start)
            seconds = time.perf_counter() - begin
            bound = -objective.value(Gaussian(scales, amplitude), points, noise)
            rows.append([name, m, who, bound / len(rows_), noise, seconds])
        start_bound = -objective.value(Gaussian(np.full(d, np.sqrt(d))), start, NOISE)
        rows.append([name, m, "(start)", start_bound / len(rows_), NOISE, 0.0])
    header = ["data", "m", "search", "bound per row", "noise", "s"]
    return format_table(header, rows) + f"\n\nOne length scale per input, all bounds computed by mercer. {note}"


def _mercer(X: Any, y: Any, start: Any) -> tuple[Any, float, float, Any]:
    kernel = Gaussian(np.full(X.shape[1], np.sqrt(X.shape[1])))
    model = PseudoInputRegressor(kernel, basis=start, noise=NOISE, max_iter=STEPS, tol=1e-9, intercept=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the steps are given
        model.fit(X, y)
    return model.kernel_.length_scale, model.kernel_.amplitude, model.noise_, model.basis_


def _lbfgs(X: Any, y: Any, start: Any) -> tuple[Any, float, float, Any]:
    return _gpytorch(X, y, start, quasi_newton=True)


def _adam(X: Any, y: Any, start: Any) -> tuple[Any, float, float, Any]:
    return _gpytorch(X, y, start, quasi_newton=False)


def _gpytorch(X: Any, y: Any, start: Any, *, quasi_newton: bool) -> tuple[Any, float, float, Any]:
    import gpytorch
    import torch

    warnings.simplefilter("ignore")
    rows, targets = torch.tensor(X), torch.tensor(y)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.GreaterThan(1e-6)
    ).double()

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(rows, targets, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))
            self.covar_module = gpytorch.kernels.InducingPointKernel(
                self.base, inducing_points=torch.tensor(start), likelihood=likelihood
            )

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model().double()
    model.base.base_kernel.lengthscale = np.sqrt(X.shape[1])
    model.base.outputscale = 1.0
    likelihood.noise = NOISE
    model.train()
    likelihood.train()
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    parameters = list(dict.fromkeys(model.parameters()))

    def loss() -> Any:
        optimiser.zero_grad()
        value = -bound(model(rows), targets)
        value.backward()
        return value

    if quasi_newton:
        optimiser = torch.optim.LBFGS(
            parameters, max_iter=STEPS, history_size=20, tolerance_change=1e-9, line_search_fn="strong_wolfe"
        )
        optimiser.step(loss)
    else:
        optimiser = torch.optim.Adam(parameters, lr=0.05)
        for _ in range(STEPS):
            loss()
            optimiser.step()
    scales = model.base.base_kernel.lengthscale.detach().numpy().ravel()
    points = model.covar_module.inducing_points.detach().numpy()
    return scales, float(model.base.outputscale), float(likelihood.noise), np.array(points)
