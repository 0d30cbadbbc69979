"""Kernel principal component analysis on a basis of few points."""

from dataclasses import field, replace
from typing import Any, ClassVar, Literal, Self

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer._validation import (
    Integral,
    Interval,
    StrOptions,
    check_is_fitted,
    check_numbers,
    parameters,
)
from mercer.engine import ArrayTable, NormalStatistics, as_rows
from mercer.estimators.shell import BASIS_CONSTRAINTS, SummedOnBasis, make_executor, on_its_threads, read_rows
from mercer.estimators.sources import read_weights
from mercer.estimators.transformation import KernelTransformer
from mercer.exceptions import warn
from mercer.kernels.base import finite_table
from mercer.methods.principal_components import PrincipalComponents
from mercer.methods.principal_summary import PrincipalSettings, PrincipalSummary
from mercer.model import KernelExpansion


@stored
@parameters
class NystromPCA(KernelTransformer, SummedOnBasis):
    r"""Kernel principal component analysis on a basis of m points, for any number of rows.

    The eigenpairs of the centred Nyström matrix :math:`H K_{nm}K_{mm}^{-1}K_{mn} H`, :math:`H = I - 11^\top/n`, from
    sums of size m × m. With all rows as basis they are those of scikit-learn's ``KernelPCA``.

    Time n·m² + m³ and memory m² per thread, however many rows; one pass over the data. ``transform`` takes m kernel
    values per row.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        As in ``NystromRegressor``. ``White`` in it is left out.
    n_components : int or None, default=None
        How many components; None for all whose variance is above rounding. If the rows vary in fewer directions than
        are asked for, there are fewer components, and a warning.
    n_basis : int, default=500
        m; if there are fewer rows, all are taken.
    basis : str, strategy or array (m, d), default="uniform"
        How basis points (landmarks) are chosen: a name, a strategy of ``mercer.basis`` that needs no targets, or the
        points themselves. ``partial_fit`` chooses them from the rows of its first call alone: give it many.
    whiten : bool, default=False
        Whether to divide components by their standard deviations, so that all have a variance of 1 on the rows seen.
    inverse : {"ridge", "fixed_point"} or None, default="ridge"
        What ``inverse_transform`` does. "ridge" returns rows as they were, as far as the components tell: by a function
        from components to rows, learned from up to 2048 of the rows, which the model keeps. "fixed_point" returns the
        row whose image is nearest to the point of these components, by iteration, which removes noise; for Gaussian
        kernels. None: nothing, and no row is kept.
    random_state : int, RandomState or None, default=None
        For the choice of the basis, and of the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress on a terminal, 2 elsewhere, too.

    Attributes
    ----------
    n_components_ : int
        Components in use.
    components_note_ : str
        Why there are fewer than were asked for, or that rows do not differ; else empty.
    explained_variance_ : array (n_components_,)
        Variance of each component over the rows seen (weighted; divided by Σω, not by one less).
    explained_variance_ratio_ : array (n_components_,)
        The same as shares of the mean of k(x, x) less the squared norm of the Nyström mean: of the variance of the rows
        in feature space, what lies outside the span of the basis included. That is exact if the span holds their mean;
        else the whole is overestimated and shares are too small, never too large.
    eigenvalues_ : array (n_components_,)
        Of the centred Nyström matrix: n (or Σω) times the variances.
    kernel_, basis_, basis_index_, rank_, basis_note_
        As in ``NystromRegressor``.
    n_seen_ : int
        Rows in the statistics.
    statistics_ : NormalStatistics
        What was kept of the rows: sums, with k(x, x) as their target.
    expansion_ : KernelExpansion
        The projection, one component per column; its intercepts do the centring.

    See Also
    --------
    NystromFeatures : The features of which these are the principal components.

    Notes
    -----
    A weight counts a row so often; only ratios of weights matter. ``merge`` adds what another model has seen, to the
    last digit as if all had been fitted here but for rounding. The sign of a component is such that the basis point
    farthest out along it is positive. Components of nearly equal variance are known only as a pair: other rows, or
    rounding, turn them into mixtures of each other.

    Where rounding allows it, a long pass sums kernel values as they are and whitens them afterwards, in half the time;
    for that ``n_components`` must be given.

    References
    ----------
    B. Schölkopf, A. Smola, K.-R. Müller: Nonlinear component analysis as a kernel eigenvalue problem, Neural
    Computation 10, 1998.

    S. Mika et al.: Kernel PCA and de-noising in feature spaces, NIPS 1998.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromPCA
    >>> rng = np.random.default_rng(0)
    >>> angles = rng.uniform(0, 2 * np.pi, size=20_000)
    >>> X = np.column_stack([np.cos(angles), np.sin(angles)]) + 0.1 * rng.normal(size=(20_000, 2))
    >>> pca = NystromPCA(n_components=2, n_basis=100, inverse="fixed_point", random_state=0).fit(X)
    >>> pca.explained_variance_ratio_.round(2)
    array([0.44, 0.43])
    >>> denoised = pca.inverse_transform(pca.transform(X[:1000]))
    >>> for rows in (X[:1000], denoised):
    ...     print(f"{np.std(np.linalg.norm(rows, axis=1)):.2f}")
    0.10
    0.02
    """

    n_components: int | None = None
    whiten: bool = False
    inverse: Literal["ridge", "fixed_point"] | None = "ridge"

    _instead_of_noise = "n_components"
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BASIS_CONSTRAINTS,
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "whiten": ["boolean"],
        "inverse": [StrOptions({"ridge", "fixed_point"}), None],
    }

    _summary: PrincipalSummary = field(init=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to the rows of X (n, d), with weights (n,); y is ignored."""
        return super().fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows; the basis is chosen by the first call. y is ignored."""
        return self._add_rows(X, y, sample_weight)

    @on_its_threads
    def inverse_transform(self, X: Any) -> FloatArray:
        """Rows (n, d) whose components are nearly the given ones (n, n_components_), as ``inverse`` says.

        Few points of the feature space are images of rows, and the components are only a part of each image: what comes
        back for the components of a row is near it, and not equal.
        """
        check_is_fitted(self)
        values = finite_table(check_numbers(X, "X"), "X")
        if values.shape[1] != self.n_components_:
            raise ValueError(f"X has {values.shape[1]} columns, but there are {self.n_components_} components.")
        return self._summary.pre_images(as_rows(values), make_executor(self))

    def _read(self, X: Any, y: Any, sample_weight: Any, *, first: bool, classes: Any = None) -> ArrayTable:
        rows = read_rows(self, X, reset=first)
        return ArrayTable(rows, weights=read_weights(rows, sample_weight, None, make_executor(self)))

    def _fit(self, table: ArrayTable) -> None:
        frame, executor = self._choose_frame(table, table.dtype), make_executor(self)
        self._summary = PrincipalSummary.start(frame, table, self._settings(), once=executor).plus(table, executor)
        _ = self._solved  # warnings are given here, not when it is first used

    def _partial_fit(self, table: ArrayTable) -> None:
        if hasattr(self, "_summary"):
            summary = replace(self._summary, settings=self._settings())
        else:
            summary = PrincipalSummary.start(self._choose_frame(table, table.dtype), table, self._settings())
        self._summary = summary.plus(table, make_executor(self))

    def _merge(self, other: Self) -> None:
        self._summary = replace(self._summary.merged(other._summary), settings=self._settings())

    def _settings(self) -> PrincipalSettings:
        number = None if self.n_components is None else int(self.n_components)
        return PrincipalSettings(n_components=number, whiten=bool(self.whiten), inverse=self.inverse)

    @property
    def _solved(self) -> PrincipalComponents:
        """The components, which are told of when they are solved for: after ``partial_fit``, on first access."""
        check_is_fitted(self)
        is_new = "components" not in vars(self._summary)
        components = self._summary.components
        wanted, found = self._summary.settings.n_components, len(components.variances)
        if is_new and components.note and wanted is not None:
            plural = "component is" if found == 1 else "components are"
            fewer = f", but {found} {plural} used" if found < wanted else ""
            warn(f"n_components={wanted}{fewer}: {components.note}", UserWarning)
        return components

    @property
    def expansion_(self) -> KernelExpansion:
        """The projection, solved for on first access."""
        return self._solved.expansion

    @property
    def n_components_(self) -> int:
        """Components in use."""
        return len(self._solved.variances)

    @property
    def components_note_(self) -> str:
        """Why there are fewer components than were asked for, or an empty string."""
        return self._solved.note

    @property
    def explained_variance_(self) -> FloatArray:
        """Variance of each component over the rows seen."""
        return self._solved.variances.copy()

    @property
    def explained_variance_ratio_(self) -> FloatArray:
        """Variances as shares of that in all directions of the feature space."""
        return self._solved.ratios

    @property
    def eigenvalues_(self) -> FloatArray:
        """Of the centred Nyström matrix."""
        return self.statistics_.total_weight * self._solved.variances

    @property
    def statistics_(self) -> NormalStatistics:
        """What was kept of the rows."""
        check_is_fitted(self)
        return self._summary.statistics

    @property
    def n_seen_(self) -> int:
        """Rows in the statistics."""
        return self.statistics_.n_rows

    @property
    def _n_outputs(self) -> int:
        return 1  # k(x, x), which is summed as if it were a target
