"""Regression by a committee: blocks of rows, correlated within, combined at the basis points."""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Self

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._stored.checks import need
from mercer._typing import FloatArray, IntArray
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted, check_random_state, parameters
from mercer.engine import ArrayTable, ConditionalStatistics, SourceRows
from mercer.estimators.regression import KernelRegressor, check_one_spread
from mercer.estimators.shell import BASIS_CONSTRAINTS, SummedOnBasis, make_executor, on_its_threads, read_rows
from mercer.exceptions import JitterWarning, warn
from mercer.methods.committee import Batch, CommitteeSummary, block_labels, likeliest_noise, make_blocks, transduced
from mercer.model import Calibration, KernelExpansion
from mercer.solvers.ridge import Choice


@stored
@parameters
class CommitteeRegressor(KernelRegressor, SummedOnBasis):
    r"""Bayesian committee machine: kernel regression on m basis points, and what they leave unexplained.

    Solves :math:`(K_{mm} + K_{mn}\Lambda^{-1}K_{nm})\,w = K_{mn}\Lambda^{-1}y`, with
    :math:`\Lambda = \lambda W^{-1} + K_{nn} - K_{nm}K_{mm}^{-1}K_{mn}` kept within blocks of rows and zero between them
    (PITC). The subset of representers, ``NystromRegressor``, leaves all but :math:`\lambda` out. With one block the
    model is the exact Gaussian process at the basis points; with blocks of one row it is FITC.

    Time n·(2m² + 2mB + B²/3) for blocks of B rows, four to five times that of ``NystromRegressor`` at B = m; memory
    m² + mB + B² per thread, however many rows.

    Parameters
    ----------
    kernel, n_basis, intercept, n_jobs, verbose
        As in ``NystromRegressor``.
    basis : str, strategy or array (m, d), default="uniform"
        As in ``NystromRegressor``. The inputs at which you will predict, if you know them, are the best basis (see
        ``predict``).
    block_size : int, default=500
        B, the most rows of a block. 1 gives FITC.
    partition : {"random", "kmeans", "order"} or array (n,), default="random"
        How rows are divided into blocks: at random, by clusters (close rows share a block, so more of their correlation
        is kept), in the order given, or by your own labels, which make blocks of any size. Rows of a scan are not
        shuffled: "random" takes them in order, too, and "kmeans" is refused.
    noise : float, "auto", "gcv" or "loo", default="auto"
        λ, relative to the prior's variance. "auto" takes that of the exact process which a committee approximates, by
        its marginal likelihood on up to 1500 of the rows; "gcv" and "loo" as in ``ExactRegressor``. ``partial_fit``
        chooses it by the first rows. 0 interpolates; blocks that are then singular, because they contain basis points,
        get jitter (reported).
    keep_rows : bool, default=True
        Whether to keep the training rows (by reference: do not change them), for ``predict(X, transduce=True)``, and
        for ``predict_interval``, ``calibration_`` and ``loo_error_`` after ``partial_fit`` or ``merge``.
    random_state : int, RandomState or None, default=None
        For the choice of the basis, of the blocks, and of the rows on which a median distance is found.

    Attributes
    ----------
    labels_ : array (n,)
        Number of the block of each row, in the order in which they were seen; -1 for rows of weight zero.
    n_blocks_ : int
        Blocks seen.
    jitter_ : float
        The most that was added to a diagonal entry of a block beyond the noise; usually 0.
    noise_ : float
        λ in use for new rows: the one given or chosen.
    log_marginal_likelihood_ : float
        Of the targets seen, under the model with ``scale_`` (for blocks of one row, that of FITC); to compare kernels
        and noises.
    scale_, calibration_, loo_error_
        As in ``NystromRegressor``; a row that is left out is predicted from the basis, as a new row is.
    kernel_, basis_, basis_index_, rank_, coefficients_, intercept_, n_seen_, expansion_
        As in ``NystromRegressor``.

    See Also
    --------
    NystromRegressor : Subset of representers: faster, and as good where the basis represents the function.
    ExactRegressor : One block, all rows as basis.

    Notes
    -----
    Weights are those of ``ExactRegressor``; but a row of weight 2 is the same as the row twice in one block, not in two
    blocks, which are treated as independent. Models that will be merged need one noise: give the others
    ``noise=first.noise_``.

    References
    ----------
    V. Tresp, A. Schwaighofer: Scalable kernel systems, ICANN 2001. J. Quiñonero-Candela, C. E. Rasmussen: A unifying
    view of sparse approximate Gaussian process regression, JMLR 6, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import CommitteeRegressor, NystromRegressor
    >>> from mercer.datasets import make_waves
    >>> X, y = make_waves(5000, n_features=3, noise=0.0, random_state=0)
    >>> options = {"n_basis": 100, "noise": 1e-4, "random_state": 0}
    >>> committee = CommitteeRegressor("matern", block_size=100, **options).fit(X[:4000], y[:4000])
    >>> nystrom = NystromRegressor("matern", **options).fit(X[:4000], y[:4000])
    >>> for predicted in (nystrom.predict(X[4000:]), committee.predict(X[4000:], transduce=True)):
    ...     print(f"{np.sqrt(np.mean((predicted - y[4000:]) ** 2)):.3f}")
    0.079
    0.033
    """

    block_size: int = 500
    partition: Any = "random"
    noise: float | Choice = "auto"
    intercept: bool = True
    keep_rows: bool = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BASIS_CONSTRAINTS,
        "block_size": [Interval(Integral, 1, None, closed="left")],
        "partition": "no_validation",  # type: ignore[dict-item]  # checked, with a message of its own, by make_blocks
        "noise": [Interval(Real, 0, None, closed="left"), StrOptions({"auto", "gcv", "loo"})],
        "keep_rows": ["boolean"],
    }

    _summary: CommitteeSummary = field(init=False)
    _batches: tuple[Batch, ...] = field(init=False)
    labels_: IntArray = field(init=False)
    _noise: Sometimes[float] = field(init=False)
    _calibrated: Sometimes[Calibration | None] = field(init=False)  # of rows that are not kept

    def check_stored(self) -> None:
        """Refuse outputs and rows that are not those of the summary."""
        super().check_stored()
        for batch in self._batches:
            need(batch.table.n_features == self.n_features_in_, "a committee keeps rows of other features.")
            need(batch.table.n_outputs == len(self._summary.target_shift), "a committee keeps other targets.")

    def _fit(self, table: ArrayTable) -> None:
        self._start(table)
        batch = self._add(table)
        _ = self.expansion_  # what cannot be solved is refused here, not when it is first used
        if not self.keep_rows:
            self._calibrated = self._summary.calibration([batch], make_executor(self))
        self._check_calibration()

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows, as one new block or (if they are more than ``block_size``) several.

        The basis, and a noise that is not a number, are chosen by the rows of the first call. Exact: the
        blocks add up. Only ``keep_rows=True`` keeps the rows.
        """
        return self._add_rows(X, y, sample_weight)

    def _partial_fit(self, table: ArrayTable) -> None:
        if not hasattr(self, "_summary"):
            self._start(table)
        self._add(table)
        self._calibrated = None

    @on_its_threads
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        transduce: bool = False,
        batch_size: int | None = None,
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict as ``NystromRegressor`` does, or by a committee made for the queries.

        Parameters
        ----------
        X : array (n, d)
        return_std, return_cov : bool, default=False
            Whether to return the standard deviation (n,) or (n, p), or the covariance (n, n) or (n, n, p), of the
            function, too, in the units of y.
        transduce : bool, default=False
            Compute the committee again with the rows of X as basis points: a pass over the training rows per batch of
            queries. Usually more accurate than the model on its own basis: at a basis point the committee combines the
            predictions of all blocks for that very value.
        batch_size : int or None, default=None
            Queries that are made a basis together; None for ``n_basis``, or ``block_size`` if that is larger. A larger
            batch is more accurate. With ``return_cov`` all queries are one batch.
        """
        if not transduce:
            return super().predict(X, return_std, return_cov)
        check_is_fitted(self)
        rows = read_rows(self, X, reset=False)
        if batch_size is not None and not (isinstance(batch_size, Integral) and batch_size >= 1):
            raise ValueError(f"batch_size must be None or a whole number of at least 1, got {batch_size!r}.")
        if not self._has_rows:
            raise ValueError("transduce=True needs the training rows, which were not kept: fit with keep_rows=True.")
        check_one_spread(return_std, return_cov)
        mean, spread, passes = transduced(
            self._summary,
            self._batches,
            rows,
            batch_size=batch_size or max(int(self.n_basis), int(self.block_size)),
            return_std=return_std,
            return_cov=return_cov,
            executor=make_executor(self),
        )
        _warn_of_jitter(passes)
        mean = self.outputs_.predict(mean)
        if spread is None:
            return mean
        scaled = self.outputs_.predict(spread[:, np.newaxis] * self._scales()) if return_std else None
        return mean, self._scaled_covariance(spread) if scaled is None else scaled

    @property
    def expansion_(self) -> KernelExpansion:
        """The model, solved for on first access."""
        check_is_fitted(self)
        return self._summary.expansion

    @property
    def noise_(self) -> float:
        """λ in use for new rows: the one given or chosen."""
        check_is_fitted(self)
        noise = self._total_noise
        given = float("nan") if isinstance(noise, str) else noise
        return float(getattr(self, "_noise", self._batches[-1].noise if self._batches else given))

    @property
    def _has_rows(self) -> bool:
        return sum(batch.table.n_rows for batch in self._batches) == self.n_seen_

    def _calibration(self) -> Calibration | None:
        if self._has_rows:
            return self._summary.calibration(self._batches, make_executor(self))
        return getattr(self, "_calibrated", None)

    def _need_calibration(self, what: str) -> Calibration:
        check_is_fitted(self)
        if not self._has_rows and getattr(self, "_calibrated", None) is None:
            raise ValueError(f"{what} needs the training rows, which were not kept: fit with keep_rows=True.")
        return super()._need_calibration(what)

    @property
    def log_marginal_likelihood_(self) -> float:
        """Logarithm of the likelihood of the targets seen (restricted, with an intercept), over all outputs.

        The density of y under N(0, scale_²(Q + Λ)) at the best σ; with an intercept b, integrated over all b (flat
        prior, REML). Weights that are whole numbers count as rows.
        """
        check_is_fitted(self)
        return self._summary.log_likelihood

    @property
    def statistics_(self) -> ConditionalStatistics:
        """What was kept of the rows."""
        check_is_fitted(self)
        return self._summary.statistics

    @property
    def jitter_(self) -> float:
        """The most that was added to a diagonal entry of a block."""
        return self.statistics_.jitter

    @property
    def n_blocks_(self) -> int:
        """Blocks seen."""
        return self.statistics_.n_blocks

    @property
    def n_seen_(self) -> int:
        """Rows seen."""
        return self.statistics_.normal.n_rows

    def _start(self, table: ArrayTable) -> None:
        # Differences of kernel values are taken: float32 would leave nothing of them.
        frame = self._choose_frame(table, np.dtype(np.float64), steady=True)
        self._summary = CommitteeSummary.start(frame, table, intercept=bool(self.intercept))
        self._batches, self.labels_ = (), np.empty(0, dtype=np.intp)
        self._calibrated = None
        noise: Any = self._total_noise
        is_chosen = isinstance(noise, str)
        if is_chosen:
            self._noise = likeliest_noise(
                noise, table, frame.kernel, intercept=bool(self.intercept), executor=make_executor(self)
            )

    def _add(self, table: ArrayTable) -> Batch:
        total = self._total_noise
        noise = self._noise = self.noise_ if isinstance(total, str) else total
        executor = make_executor(self)
        random_state, size = check_random_state(self.random_state), int(self.block_size)
        blocks = make_blocks(
            self.partition, size, table, self.kernel_, noise=noise, random_state=random_state, executor=executor
        )
        shuffled = self._shuffles and blocks is not None and not isinstance(table.rows, SourceRows)
        batch = Batch(table, blocks, noise, shuffled)
        new = replace(self._summary, intercept=bool(self.intercept)).plus(batch, executor)
        if new.statistics.n_singular > self._summary.statistics.n_singular:
            _warn_of_jitter([new.statistics])
        elif new.is_drowned(batch.least_noise):
            warn(
                f"a noise of {batch.least_noise:.3g} (noise over sample_weight) is so small beside k(x, x) that rows "
                "which the basis spans outweigh all others: predictions are inaccurate. Use a larger noise, or 0, "
                "which adds jitter, or weights of a smaller range.",
                JitterWarning,
            )
        self._summary = new
        self.labels_ = _joined(self.labels_, block_labels(blocks, table, noise))
        self._batches = (*self._batches, batch) if self.keep_rows else ()
        return batch

    @property
    def _shuffles(self) -> bool:
        return isinstance(self.partition, str) and self.partition == "random"

    def _merge(self, other: Self) -> None:
        self._summary = replace(self._summary.merged(other._summary), intercept=bool(self.intercept))
        self.labels_ = _joined(self.labels_, other.labels_)
        self._batches = self._batches + other._batches
        self._calibrated = None


def _joined(first: IntArray, second: IntArray) -> IntArray:
    """Labels of two sets of blocks, those of the second renumbered to follow the first's."""
    following = np.max(first, initial=-1) + 1
    return np.concatenate([first, np.where(second < 0, -1, second + following)])


def _warn_of_jitter(passes: Sequence[ConditionalStatistics]) -> None:
    singular = sum(statistics.n_singular for statistics in passes)
    if singular == 0:
        return
    jitter = max(statistics.jitter for statistics in passes)
    blocks = sum(statistics.n_blocks for statistics in passes)
    warn(
        f"{singular} of {blocks} blocks are singular to rounding given the basis; {jitter:.2g} was added to their "
        "diagonal. Basis points that are training rows, duplicate rows and smooth kernels cause this where there is "
        "little or no noise; a larger noise avoids it.",
        JitterWarning,
    )
