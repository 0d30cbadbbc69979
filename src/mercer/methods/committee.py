r"""How a committee parts rows into blocks, what it has seen, and the model that follows from it.

===============  =========================  ============  ==================================================
document 000     code                       shape         meaning
===============  =========================  ============  ==================================================
Σ^{b,b} = LLᵀ    ``frame.lower``            (m, m)        kernel matrix of the basis points
cov(y|f^b)       Λ                          blocks B × B  λW⁻¹ + K_nn - VVᵀ within a block, 0 elsewhere (9)
Σ^{m,b}          K_nm = VLᵀ                 (n, m)        kernel values between rows and basis points
A, c             ``statistics``             (m, m), (m,)  VᵀΛ⁻¹V, VᵀΛ⁻¹y
w^b              ``coefficients`` = L⁻ᵀu    (m, p)        (I + A) u = c, the system of section 5, whitened
===============  =========================  ============  ==================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_index, need
from mercer._typing import FloatArray, IntArray
from mercer.basis import Basis
from mercer.basis.kmeans import cluster_centres, metric_of
from mercer.engine import (
    ArrayRows,
    ArrayTable,
    Block,
    ConditionalStatistics,
    Executor,
    Influences,
    Rows,
    SomeRows,
    SourceRows,
    conditional_statistics,
    influences,
    nearest_points,
)
from mercer.kernels import Kernel
from mercer.methods.exact import DECIDING_ROWS, choose_noise
from mercer.methods.frame import Frame, target_shift, used_rows
from mercer.methods.left_out import leave_out
from mercer.model import Calibration, KernelExpansion, as_dtype
from mercer.model.calibration import SAMPLE, sample_rows
from mercer.solvers.ridge import Choice, RidgeProblem, RidgeSolution, profiled_log_likelihood

PARTITIONS = ("random", "kmeans", "order")

_SAMPLE_PER_CLUSTER = 50  # rows from which a cluster's centre is found
_NO_PROGRESS = 0.9  # a cluster that keeps this share of the rows is split at random: they are (nearly) equal
_TINY_NOISE, _DROWNED = 1e-10, 1e-3  # beside k(z, z), and beside the prior's precision, which is 1


@stored
@dataclass(frozen=True)
class Batch:
    """Rows that came together, how they are divided into blocks, and their noise."""

    table: ArrayTable
    blocks: list[Block] | None  # None: each row by itself
    noise: float
    shuffled: Sometimes[bool] = False  # whether blocks are rows at random, so that a few of them are a sample

    def check_stored(self) -> None:
        """Refuse blocks beyond the rows."""
        n_rows = self.table.n_rows
        for block in self.blocks or []:
            if isinstance(block, slice):
                need(block.start is not None and block.stop is not None, "a block has no bounds.")
                need(block.step in (None, 1), "a block leaves rows out.")
                need(0 <= block.start <= block.stop <= n_rows, "a block goes beyond the rows.")
            else:
                check_index(block, n_rows, "a block")

    @property
    def least_noise(self) -> float:
        """The least λ/ω of a row."""
        weights = self.table.weights
        return self.noise if weights is None else self.noise / max(1.0, float(np.max(weights)))

    @property
    def used(self) -> IntArray:
        """Numbers of the rows of positive weight; those of random blocks in random order."""
        if self.blocks is None or not self.shuffled:
            return used_rows(self.table, self.noise)
        return np.concatenate([np.arange(self.table.n_rows)[block] for block in self.blocks])


@stored(also=("expansion",))
@dataclass(frozen=True)
class CommitteeSummary:
    """Statistics of the blocks seen, on a frame; a value, as ``nystrom.Summary`` is."""

    frame: Frame
    statistics: ConditionalStatistics
    target_shift: FloatArray  # (p,), subtracted from the targets
    intercept: bool

    def check_stored(self) -> None:
        """Refuse sums and a model of another basis."""
        self.frame.check_sums(self.statistics.normal, self.target_shift)
        self.frame.check_expansion(vars(self).get("expansion"), len(self.target_shift))

    @classmethod
    def start(cls, frame: Frame, table: ArrayTable, *, intercept: bool) -> CommitteeSummary:
        """Summary of no blocks."""
        statistics = ConditionalStatistics.zeros(len(frame.lower), table.n_outputs)
        return cls(frame, statistics, target_shift(table, intercept=intercept), intercept)

    def plus(self, batch: Batch, executor: Executor) -> CommitteeSummary:
        """Return the summary with the batch's blocks added."""
        statistics = conditional_statistics(
            batch.table.shifted(self.target_shift),
            self.frame.features(whitened=True),
            noise=batch.noise,
            blocks=batch.blocks,
            executor=executor,
        )
        return replace(self, statistics=self.statistics + statistics)

    def merged(self, other: CommitteeSummary) -> CommitteeSummary:
        """Return the summary of both sets of blocks."""
        normal = other.statistics.normal.with_targets_shifted(other.target_shift - self.target_shift)
        return replace(self, statistics=self.statistics + replace(other.statistics, normal=normal))

    def is_drowned(self, noise: float) -> bool:
        """Whether the sums' rounding is a visible share of the prior, because of a noise near rounding of k(x, x)."""
        if not 0 < noise < _TINY_NOISE * self.frame.largest_kernel:
            return False
        gram = self.statistics.normal.gram
        return bool(len(gram) * np.finfo(np.float64).eps * np.trace(gram) > _DROWNED)

    @cached_property
    def expansion(self) -> KernelExpansion:
        """The model."""
        return self.frame.expansion(self._solution, self.target_shift, prior=True)

    @cached_property
    def log_likelihood(self) -> float:
        r"""Logarithm of the marginal likelihood, summed over the outputs.

        :math:`-\frac12(\log|VV^\top + \Lambda| + y^\top(VV^\top + \Lambda)^{-1}y + n\log 2\pi)`, by the lemmas of
        Sylvester and Woodbury, for :math:`\sigma^2(VV^\top + \Lambda)` at the best σ of each output; with an
        intercept, integrated over its flat prior. A row of weight 2 is two rows. Constant outputs are left out.
        """
        problem, solution = self._problem, self._solution
        # |VVᵀ + Λ| = |I + A||Λ|, and root is (I + A)^(-1/2)
        determinant = self.statistics.repeated_log_determinant - 2.0 * float(np.linalg.slogdet(solution.root)[1])
        if problem.has_intercept:
            determinant += np.log(problem.total_weight)
        return profiled_log_likelihood(self.expansion.scales, determinant, problem.freedom)

    def calibration(self, batches: Sequence[Batch], executor: Executor) -> Calibration | None:
        """Leave-one-out residuals, at the basis, of a sample of the rows seen; None without noise.

        f without a row is predicted as at a new input: from the basis, not from the other rows of the block. Cost:
        about that of the blocks in which the sample is, once more; few of them where blocks are random.
        """
        if "_calibration" not in vars(self):
            vars(self)["_calibration"] = self._calibrate(batches, executor)
        calibration: Calibration | None = vars(self)["_calibration"]
        return calibration

    def _calibrate(self, batches: Sequence[Batch], executor: Executor) -> Calibration | None:
        if any(batch.noise <= 0 for batch in batches):
            return None
        bounds = np.cumsum([0, *(len(batch.used) for batch in batches)])
        sample, parts = sample_rows(np.arange(bounds[-1]), SAMPLE), []
        for batch, start, stop in zip(batches, bounds[:-1], bounds[1:], strict=True):
            wanted = sample[(start <= sample) & (sample < stop)] - start
            if len(wanted):
                # Of rows in random order the first are a sample, and in few blocks.
                index = batch.used[: len(wanted)] if batch.shuffled else batch.used[wanted]
                found, some = self._influences(batch, index, executor), batch.table.subset(index)
                parts.append(leave_out(found, some.targets, some.weights, counted=some.counted, noise=batch.noise))
        return Calibration.joined(parts) if parts else None

    def _influences(self, batch: Batch, index: IntArray, executor: Executor) -> Influences:
        """Of some rows of a batch."""
        solution, features = self._solution, self.frame.features(whitened=True)
        intercept = solution.shifted_intercept(self.target_shift)
        if batch.blocks is None:
            some = batch.table.subset(index)
            return influences(some, features, solution, intercept, noise=batch.noise, blocks=None, executor=executor)
        numbers = np.arange(batch.table.n_rows)
        members = [numbers[block] for block in batch.blocks]
        chosen = np.zeros(batch.table.n_rows, dtype=bool)
        chosen[index] = True
        needed = [number for number, rows in enumerate(members) if np.any(chosen[rows])]
        found = influences(
            batch.table, features, solution, intercept,
            noise=batch.noise, blocks=[batch.blocks[number] for number in needed], executor=executor,
        )  # fmt: skip
        place = np.empty(batch.table.n_rows, dtype=np.intp)
        within = np.concatenate([members[number] for number in needed])
        place[within] = np.arange(len(within))
        return Influences(*(values[place[index]] for values in found))

    @cached_property
    def _problem(self) -> RidgeProblem:
        sums, n_targets = self.statistics.normal, self.statistics.n_targets
        return self.frame.problem(sums, self.target_shift, intercept=self.intercept, n_targets=n_targets)

    @cached_property
    def _solution(self) -> RidgeSolution:
        return self._problem.solve(1.0)  # the noise is in Λ


def transduced(
    summary: CommitteeSummary,
    batches: Sequence[Batch],
    queries: Rows,
    *,
    batch_size: int,
    return_std: bool,
    return_cov: bool,
    executor: Executor,
) -> tuple[FloatArray, FloatArray | None, list[ConditionalStatistics]]:
    """Compute the committee again with the queries as basis points; each batch of them is a pass over the rows.

    At its basis points a committee combines what each block knows of those very values; anywhere else it interpolates.
    So the best basis for a set of queries is the set (footnote 2 of document 000).

    Returns the mean (n, p) at the queries, the standard deviation or covariance asked for in units of the model's σ,
    whatever the basis, and the statistics of each pass.
    """
    n = queries.n_rows
    n_batches = 1 if return_cov else -(-n // batch_size)
    mean = np.empty((n, len(summary.target_shift)))
    spread: FloatArray | None = np.empty(n) if return_std else None
    passes = []
    for number in range(n_batches):
        # Every so many queries, not the next so many: queries in order of place or time make a basis that is spread.
        index = np.arange(number, n, n_batches)
        points = queries.take(index)
        basis = Basis(points=points.astype(np.float64))
        frame = Frame.build(summary.frame.kernel, basis, summary.frame.dtype, steady=True)
        empty = ConditionalStatistics.zeros(len(frame.lower), len(summary.target_shift))
        local = replace(summary, frame=frame, statistics=empty)
        for batch in batches:
            local = local.plus(batch, executor)
        rows, expansion = ArrayRows(points, checked=True), local.expansion
        mean[index] = expansion.evaluate(rows, executor=executor)
        if return_cov:
            spread = expansion.covariance(rows, executor=executor)
        elif spread is not None:
            spread[index] = np.sqrt(expansion.variances(rows, executor=executor))
        passes.append(local.statistics)
    return as_dtype(mean, queries.dtype), spread, passes


def likeliest_noise(choice: Choice, table: ArrayTable, kernel: Kernel, *, intercept: bool, executor: Executor) -> float:
    """The noise of the exact process, which a committee approximates, by a sample of the rows: see ``choose_noise``.

    The committee's own likelihood would take a pass over the rows for each noise, because Λ depends on it.
    """
    some = table.subset(sample_rows(used_rows(table, 1.0), DECIDING_ROWS))
    points = some.rows.take(np.arange(some.n_rows)).astype(np.float64, copy=False)
    weights = np.ones(len(points)) if some.weights is None else some.weights
    return choose_noise(
        choice, ArrayRows(points, checked=True), kernel, points, some.targets, weights,
        counted=some.counted, intercept=intercept, executor=executor,
    )  # fmt: skip


# ------------------------------------------------------------------------------- rows parted into blocks


def make_blocks(
    partition: Any,
    block_size: int,
    table: ArrayTable,
    kernel: Kernel,
    *,
    noise: float,
    random_state: np.random.RandomState,
    executor: Executor,
) -> list[Block] | None:
    """Return the rows of each block, without those of weight zero; None if every block is a single row.

    ``partition`` is one of ``PARTITIONS`` or has a label for each row; labels make blocks of any size, the others of at
    most ``block_size`` rows. The kernel's length scales, one per feature, are the metric of k-means.
    """
    used = used_rows(table, noise)
    if not isinstance(partition, str):
        return _by_label(_checked_labels(partition, table.n_rows), used)
    if partition not in PARTITIONS:
        names = ", ".join(repr(name) for name in PARTITIONS)
        raise ValueError(f"partition must be one of {names}, or an array of labels; got {partition!r}.")
    if block_size == 1:
        return None
    if partition == "kmeans" and isinstance(table.rows, SourceRows):
        raise ValueError(
            "partition='kmeans' puts rows together that lie anywhere in files or partitions: take 'order', and write "
            "the rows in an order in which neighbours are close, or give an array."
        )
    if partition == "order" or isinstance(table.rows, SourceRows):
        return _in_order(used, block_size, table.n_rows)
    if partition == "random":
        return _at_random(used, block_size, random_state)
    return _by_clusters(used, table.rows, metric_of(kernel), block_size, random_state, executor)


def block_labels(blocks: list[Block] | None, table: ArrayTable, noise: float) -> IntArray:
    """Number of the block of each row, -1 for rows in none; without blocks each row of positive weight is one."""
    labels = np.full(table.n_rows, -1)
    if blocks is None:
        used = used_rows(table, noise)
        labels[used] = np.arange(len(used))
        return labels
    for number, block in enumerate(blocks):
        labels[block] = number
    return labels


def _in_order(used: IntArray, block_size: int, n_rows: int) -> list[Block]:
    starts = range(0, len(used), block_size)
    if len(used) == n_rows:
        return [slice(start, min(start + block_size, n_rows)) for start in starts]
    return [used[start : start + block_size] for start in starts]


def _at_random(index: IntArray, block_size: int, random_state: np.random.RandomState) -> list[Block]:
    n_blocks = -(-len(index) // block_size)
    return [np.sort(part) for part in np.array_split(random_state.permutation(index), n_blocks)]


def _by_clusters(
    index: IntArray, rows: Rows, scale: Any, block_size: int, random_state: np.random.RandomState, executor: Executor
) -> list[Block]:
    """k-means, again inside the clusters that are larger than a block."""
    if len(index) <= block_size:
        return [index]
    n_clusters = -(-len(index) // block_size)
    n_sampled = min(len(index), _SAMPLE_PER_CLUSTER * n_clusters)
    sample = rows.take(np.sort(random_state.choice(index, n_sampled, replace=False)))
    centres = cluster_centres(sample, n_clusters, scale, random_state)
    some = rows if len(index) == rows.n_rows else SomeRows(rows, index)
    labels = nearest_points(some, centres, scale, executor=executor)
    parts = [part for part in (index[labels == label] for label in range(n_clusters)) if len(part)]
    if max(map(len, parts)) > _NO_PROGRESS * len(index):
        return _at_random(index, block_size, random_state)
    return [block for part in parts for block in _by_clusters(part, rows, scale, block_size, random_state, executor)]


def _by_label(labels: IntArray, used: IntArray) -> list[Block] | None:
    order = used[np.argsort(labels[used], kind="stable")]
    bounds = np.flatnonzero(np.diff(labels[order])) + 1
    return list(np.split(order, bounds)) if len(bounds) + 1 < len(order) else None


def _checked_labels(partition: Any, n_rows: int) -> IntArray:
    labels = np.asarray(partition)
    if labels.ndim != 1 or len(labels) != n_rows:
        msg = f"partition, given as labels, must have one for each of the {n_rows} rows; its shape is {labels.shape}."
        raise ValueError(msg)
    if labels.dtype.kind == "O":
        kinds = {type(label) for label in labels.ravel()}
        if len(kinds) > 1 or any(label is None or label != label for label in labels.ravel()):  # noqa: PLR0124  NaN
            raise ValueError("partition, given as labels, must hold labels of one kind, none of them missing.")
    if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
        raise ValueError("partition, given as labels, contains NaN or infinity.")
    return np.unique(labels, return_inverse=True)[1]
