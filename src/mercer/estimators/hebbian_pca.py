"""Kernel PCA of a stream."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Literal, Self

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_columns, check_estimator, check_finite, need
from mercer._typing import FloatArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted, is_fitted, parameters
from mercer.engine import ArrayRows, ArrayTable
from mercer.estimators.collections import takes_collections
from mercer.estimators.kernel_parameter import KernelParameter
from mercer.estimators.shell import all_or_nothing, make_executor, read_rows
from mercer.estimators.transformation import KernelTransformer
from mercer.exceptions import warn
from mercer.kernels import Kernel
from mercer.methods.frame import given_kernel, resolve_kernel
from mercer.methods.hebbian import HebbianLearner, Rules, pass_over_table, stream
from mercer.model import KernelExpansion
from mercer.solvers.hebbian import ANNEALED, CONSTANT, EIGENVALUE, SPREAD, Gains

_FIRST = 128  # rows by which a median length scale is decided
_RULES = {"constant": CONSTANT, "annealed": ANNEALED, "eigenvalue": EIGENVALUE}


@stored
@parameters
class HebbianPCA(KernelTransformer, KernelParameter):
    r"""Kernel PCA of a stream by the kernel Hebbian algorithm: no kernel matrix, each row is seen once, or some times.

    With :math:`v(x) = L^{-1}k_m(x)`, :math:`K_{mm} = LL^\top`, the coordinates of a row on a dictionary of m rows, and
    their mean :math:`\bar v`, the components are :math:`y = W(v(x) - \bar v)`. Each row moves them by Sanger's rule

    .. math:: W \leftarrow W + \operatorname{diag}(\eta)\,(y\,(v - \bar v)^\top - \operatorname{LT}[y y^\top]\,W),

    where LT sets what is above the diagonal to zero. The rows of W converge to the principal directions of the rows,
    projected on the dictionary: with all rows in the dictionary, to those of kernel PCA.

    A row joins the dictionary if the others do not represent it (see ``novelty_tol``), until there are ``max_basis``.
    Then the dictionary stays as it is, and rows are learned as far as it represents them. The i-th component starts as
    the part of the i-th dictionary row that those before it do not span.

    What is centred by what: ``fit`` finds the dictionary and the mean of all rows on it first, and centres each row by
    that mean. ``partial_fit`` centres a row by the mean of the rows so far, itself included, each of which is projected
    on the dictionary as it was when the row came: exact as long as ``novelty_tol`` is zero and there is room, since
    every row is then in the span of the dictionary. A row that was left out lacks what points that join later would
    represent of it, a squared distance of no more than ``novelty_tol`` k(x, x).

    Time r·m per row for r components, after its coordinates, which take m kernel values and m²/2 multiply-adds in
    matrix products; memory m² + m·(d + r). ``fit`` also keeps the coordinates (n, m) if they fit in scikit-learn's
    ``working_memory``. For a given kernel the result does not depend on how rows are batched, beyond the rounding of
    these products; given the coordinates, rows are learned one after the other.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        As in ``NystromRegressor``. A median length scale is that of the rows of ``fit``, or of the first 128 rows (or
        more, if one batch has them): until then ``partial_fit`` starts over with all rows so far.
    n_components : int, default=2
        r. There are fewer if the dictionary does not have as many dimensions; ``fit`` warns of that.
    max_basis : int, default=500
        Most rows in the dictionary.
    novelty_tol : float, default=1e-3
        Least squared distance of a row from the span of the dictionary, as a share of k(x, x), to join. Zero lets every
        row join that is not spanned to rounding: by 1e-10, and more if its image is extrapolated.
    gain : {"eigenvalue", "annealed", "constant"}, default="eigenvalue"
        Sizes of steps, with :math:`a_t = \tau/(\tau + t)` at step t, and σ² the variance of the rows on the dictionary.
        "constant": :math:`\eta_0/\sigma^2`, which follows rows that change, and never settles. "annealed":
        :math:`\eta_0 a_t/\sigma^2`, slow for components of small variance. "eigenvalue":
        :math:`\eta_i = \min(\eta_0 a_t/\lambda_i, 1/|v - \bar v|^2)` with the variance λᵢ of the component so far.
    learning_rate : float, default=0.1
        η₀.
    decay : float, default=100.0
        τ, in steps. The larger η₀τ, the faster what is wrong at first is forgotten, and the larger the noise.
        "annealed" needs a larger one: by the factor σ²/λᵢ for as fast a component.
    n_epochs : int, default=10
        How many times ``fit`` learns each row, in the order given.
    random_state : int, RandomState or None, default=None
        For the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads for coordinates and ``transform``; learning uses one.
    verbose : int, default=0
        1 shows progress on a terminal, 2 elsewhere, too.

    Attributes
    ----------
    kernel_ : Kernel
    basis_ : array (m, d)
        The dictionary.
    n_components_ : int
    explained_variance_ : array (n_components_,)
        λᵢ: mean of yᵢ² before the row was learned, in which the s-th row counts s times: what is old fades.
    explained_variance_ratio_ : array (n_components_,)
        λᵢ/σ², shares of the variance that the dictionary represents.
    n_seen_ : int
        Rows that the mean is of.
    n_steps_ : int
        Rows learned, each pass of ``fit`` counting.
    expansion_ : KernelExpansion

    See Also
    --------
    sklearn.decomposition.KernelPCA : by the eigenvalues of the full kernel matrix.

    References
    ----------
    K. I. Kim, M. O. Franz, B. Schölkopf: Kernel Hebbian algorithm for iterative kernel principal component analysis,
    2003. S. Günter, N. N. Schraudolph, S. V. N. Vishwanathan: Fast iterative kernel principal component analysis, 2007.
    T. D. Sanger: Optimal unsupervised learning in a single-layer linear feedforward neural network, 1989.

    Examples
    --------
    Two rings, which no linear map separates, one batch after the other:

    >>> import numpy as np
    >>> from mercer import HebbianPCA
    >>> from mercer.kernels import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> model = HebbianPCA(Gaussian(1.0), n_components=3, max_basis=100)
    >>> for _ in range(20):
    ...     angle, radius = rng.uniform(0, 2 * np.pi, size=500), rng.choice([0.5, 2.0], size=500)
    ...     _ = model.partial_fit(np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]))
    >>> inner, outer = model.transform([[0.5, 0.0], [0.0, -0.5]]), model.transform([[2.0, 0.0], [0.0, 2.0]])
    >>> bool(np.all(inner[:, 0] * outer[:, 0] < -0.1))  # the first component tells the rings apart
    True
    """

    kernel: Any = field(default="gaussian", kw_only=False)
    n_components: int = 2
    max_basis: int = 500
    novelty_tol: float = 1e-3
    gain: Literal["eigenvalue", "annealed", "constant"] = "eigenvalue"
    learning_rate: float = 0.1
    decay: float = 100.0
    n_epochs: int = 10
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0

    _instead_of_noise = "n_components"
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": "no_validation",  # checked, with a message of its own, by as_kernel
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "max_basis": [Interval(Integral, 1, None, closed="left")],
        "novelty_tol": [Interval(Real, 0, 1, closed="left")],
        "gain": [StrOptions(set(_RULES))],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "decay": [Interval(Real, 0, None, closed="neither")],
        "n_epochs": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }

    _learner: HebbianLearner = field(init=False)
    _first: Sometimes[FloatArray | None] = field(init=False)  # rows so far, while they are too few for a length scale

    @takes_collections
    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the components of rows X (n, d) in ``n_epochs`` passes over them, in their order; y is ignored."""
        self._validate_params()
        with all_or_nothing(self):
            table = ArrayTable(read_rows(self, X, reset=True))
            kernel = resolve_kernel(self.kernel, table, self.random_state)
            learner = HebbianLearner.start(kernel, table.n_features, int(self.n_components))
            executor = make_executor(self)
            rules, n_epochs = self._rules(), int(self.n_epochs)
            self._learner = pass_over_table(learner, table, rules, n_epochs=n_epochs, executor=executor)
            self._first = None
            self._check_components(table.n_rows)
        return self

    @takes_collections
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn the rows of X (n, d) once, in their order, after those seen before; y is ignored.

        Gains and the budget may have been changed since the last; kernel and n_components may not.
        """
        self._validate_params()
        with all_or_nothing(self):
            first = not is_fitted(self)
            table = ArrayTable(read_rows(self, X, reset=first))
            make_executor(self)  # which refuses n_jobs=0
            learner, kept = self._start(table) if first else self._go_on(table)
            self._learner = stream(learner, table, self._rules(), verbose=self.verbose)
            self._first = kept
        return self

    def _start(self, table: ArrayTable) -> tuple[HebbianLearner, FloatArray | None]:
        """A learner that has seen nothing, and the rows to keep, if they are too few to decide a length scale."""
        kernel = resolve_kernel(self.kernel, table, self.random_state)
        learner = HebbianLearner.start(kernel, table.n_features, int(self.n_components))
        few = given_kernel(self.kernel, table.n_features).needs_data and table.n_rows < _FIRST
        return learner, _rows_of(table, table.n_rows) if few else None

    def _go_on(self, table: ArrayTable) -> tuple[HebbianLearner, FloatArray | None]:
        """A copy of the learner; if there were few rows so far, one with the length scale of those and these."""
        self._check_unchanged()
        before = vars(self).get("_first")
        if before is None:
            return self._learner.copy(), None
        both = np.concatenate([before, _rows_of(table, _FIRST)])
        learner, _ = self._start(ArrayTable(ArrayRows(both, checked=True)))
        learner.learn(before, self._rules())
        return learner, both if len(both) < _FIRST else None

    def _check_unchanged(self) -> None:
        kernel, found = given_kernel(self.kernel, self.n_features_in_), self.kernel_
        resolved = found if kernel.needs_data else kernel.resolve(self.basis_[:0])
        if type(kernel) is not type(found) or not resolved.equals(found):
            msg = f"the kernel was {found} when the first rows were learned and cannot change: call fit."
            raise ValueError(msg)
        if len(self._learner.directions) != self.n_components:
            msg = f"n_components was {len(self._learner.directions)} when the first rows were learned: call fit."
            raise ValueError(msg)

    def _check_components(self, n_rows: int) -> None:
        """Refuse rows without any variance; warn if there are fewer components than asked for."""
        if not self.n_components_:
            raise ValueError(
                f"n_samples={n_rows}: there is no component, as the kernel tells no two rows of X apart, by more than "
                f"rounding and novelty_tol={self.novelty_tol:g}. Subtract large means of the features, or choose a "
                "smaller novelty_tol or a shorter length scale."
            )
        if self.n_components_ < self.n_components:
            warn(
                f"n_components={self.n_components}, but the rows span only {self.n_components_} dimensions on a "
                f"dictionary of {len(self.basis_)} rows: there are {self.n_components_} components. Choose a smaller "
                "n_components or novelty_tol, a larger max_basis or a shorter length scale, and subtract large means "
                "of the features.",
                UserWarning,
            )

    def _rules(self) -> Rules:
        gains = Gains(_RULES[self.gain], float(self.learning_rate), float(self.decay))
        return Rules(int(self.max_basis), float(self.novelty_tol), gains)

    @property
    def expansion_(self) -> KernelExpansion:
        """The components as functions."""
        check_is_fitted(self)
        if not self.n_components_:
            raise ValueError(
                f"there is no component yet: the kernel does not tell the {self.n_seen_} row(s) so far apart."
            )
        return self._learner.expansion

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its parameters as numbers."""
        check_is_fitted(self)
        return self._learner.dictionary.kernel

    @property
    def basis_(self) -> FloatArray:
        """The dictionary, shape (m, d); read-only, as the model is."""
        check_is_fitted(self)
        points = self._learner.dictionary.points.view()
        points.flags.writeable = False
        return points

    @property
    def n_components_(self) -> int:
        """How many components there are."""
        check_is_fitted(self)
        return self._learner.n_components

    @property
    def explained_variance_(self) -> FloatArray:
        """Variance of each component, shape (n_components_,)."""
        check_is_fitted(self)
        return self._learner.variances[: self.n_components_].copy()

    @property
    def explained_variance_ratio_(self) -> FloatArray:
        """Variance of each component as a share of that of the rows on the dictionary."""
        return np.asarray(self.explained_variance_ / self._learner.counts[SPREAD])

    @property
    def n_seen_(self) -> int:
        """Rows that the mean is of."""
        check_is_fitted(self)
        return self._learner.n_seen

    @property
    def n_steps_(self) -> int:
        """Rows learned; each pass counts."""
        check_is_fitted(self)
        return self._learner.n_steps

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learner")

    def check_stored(self) -> None:
        """Refuse an archive whose parts do not fit together."""
        n_features = self._learner.dictionary.points.shape[1]
        check_estimator(self, n_outputs=1, n_features=n_features)
        first = vars(self).get("_first")
        if first is not None:
            need(first.ndim == 2 and first.dtype == np.float64, "the first rows are no table of float64.")
            check_columns(first, len(first), "the first rows")
            check_finite(first, "the first rows")


def _rows_of(table: ArrayTable, most: int) -> FloatArray:
    """The first rows, at most so many."""
    return table.rows.read(0, min(most, table.n_rows)).astype(np.float64)
