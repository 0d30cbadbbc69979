"""How well each strategy's basis represents the kernel, against the number of points: before anything is fitted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mercer._typing import RandomState
from mercer._validation import check_random_state, check_targets
from mercer.basis import NystromError, choose_basis, nystrom_error
from mercer.engine import ArrayTable, Executor, Threads, as_rows
from mercer.methods.frame import resolve_kernel
from mercer.reports.table import format_table

UNSUPERVISED = ("uniform", "kmeans", "leverage", "pivoted_cholesky")


@dataclass(frozen=True)
class BasisErrors:
    """Errors by strategy and number of points; printed, a table of the shares of the trace that are left.

    Attributes
    ----------
    n_basis : tuple of int
    errors : dict from the strategy's name to a list of NystromError
    """

    n_basis: tuple[int, ...]
    errors: dict[str, list[NystromError]]

    def __str__(self) -> str:
        header = ["share of the trace left", *map(str, self.n_basis)]
        rows = [[name, *(f"{one.unexplained:.2e}" for one in several)] for name, several in self.errors.items()]
        return format_table(header, rows)

    def plot(self, path: str | Path) -> None:
        """Plot them and save the plot (PNG, SVG or PDF by the file's ending); needs matplotlib."""
        from mercer.reports.plots import plot_curves

        curves = {name: [max(one.unexplained, 1e-16) for one in several] for name, several in self.errors.items()}
        panels = {"share of the trace left": curves}
        plot_curves(path, panels, x=np.array(self.n_basis), xlabel="basis points", ylabel="error")


def basis_errors(
    X: Any,
    kernel: Any = "gaussian",
    n_basis: Sequence[int] = (25, 50, 100, 200),
    *,
    strategies: str | Sequence[str] | Mapping[str, Any] = UNSUPERVISED,
    y: Any = None,
    random_state: RandomState = None,
    executor: Executor | None = None,
) -> BasisErrors:
    """Choose a basis by each strategy and in each size, and measure what it leaves of the kernel matrix.

    Parameters
    ----------
    X : array (n, d) or Rows
    kernel : str or kernel, default="gaussian"
    n_basis : sequence of int, default=(25, 50, 100, 200)
    strategies : names, or mapping from names of your own to strategies
    y : array (n,), (n, p) or None, default=None
        Targets, which some strategies need.
    random_state : int, RandomState or None, default=None
    executor : Executor or None, default=None

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.kernels import Gaussian
    >>> from mercer.reports.basis_errors import basis_errors
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> errors = basis_errors(X, Gaussian(1.0), (10, 40), random_state=0)
    >>> sorted(errors.errors)
    ['kmeans', 'leverage', 'pivoted_cholesky', 'uniform']
    >>> bool(errors.errors["pivoted_cholesky"][1].unexplained < 0.01)
    True
    """
    rows, executor = as_rows(X), executor or Threads()
    targets = np.zeros(rows.n_rows) if y is None else check_targets(y, n_rows=rows.n_rows)
    targets = targets.reshape(rows.n_rows, -1)
    random = check_random_state(random_state)
    resolved = resolve_kernel(kernel, ArrayTable(rows, targets), random)
    seed = int(random.randint(2**31))

    def error(strategy: Any, number: int) -> NystromError:
        given = {"weights": None, "random_state": np.random.RandomState(seed), "executor": executor}
        basis = choose_basis(strategy, rows, targets, resolved, number, **given)
        return nystrom_error(rows, basis, resolved, random_state=seed, executor=executor)

    if isinstance(strategies, str):
        strategies = [strategies]
    named = strategies if isinstance(strategies, Mapping) else {name: name for name in strategies}
    numbers = tuple(map(int, n_basis))
    return BasisErrors(numbers, {name: [error(each, number) for number in numbers] for name, each in named.items()})
