"""Ways to part rows into the blocks of a committee."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.basis.kmeans import cluster_centres, metric_of
from mercer.engine import ArrayTable, Block, Executor, Rows, nearest_points
from mercer.kernels import Kernel
from mercer.methods.frame import used_rows

__all__ = ["PARTITIONS", "block_labels", "make_blocks"]

PARTITIONS = ("random", "kmeans", "order")

_SAMPLE_PER_CLUSTER = 50  # rows from which a cluster's centre is found
_NO_PROGRESS = 0.9  # a cluster that keeps this share of the rows is split at random: they are (nearly) equal


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

    Parameters
    ----------
    partition : str or array (n,)
        "random", "kmeans", "order", or a label for each row.
    block_size : int
        Most rows of a block; labels make blocks of any size.
    table : ArrayTable
    kernel : Kernel
        Its length scales, one per feature, are the metric of k-means.
    noise : float
    random_state : RandomState
    executor : Threads
    """
    used = used_rows(table, noise)
    if not isinstance(partition, str):
        return _not_single(_by_label(_checked_labels(partition, table.n_rows), used))
    if partition not in PARTITIONS:
        names = ", ".join(repr(name) for name in PARTITIONS)
        msg = f"partition must be one of {names}, or an array of labels; got {partition!r}."
        raise ValueError(msg)
    if block_size == 1:
        return None
    if partition == "order":
        return _in_order(used, block_size, table.n_rows)
    if partition == "random":
        n_blocks = -(-len(used) // block_size)
        return [np.sort(part) for part in np.array_split(random_state.permutation(used), n_blocks)]
    return _Clusters(table.rows, metric_of(kernel), block_size, random_state, executor).split(used)


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


def _by_label(labels: IntArray, used: IntArray) -> list[Block]:
    order = used[np.argsort(labels[used], kind="stable")]
    bounds = np.flatnonzero(np.diff(labels[order])) + 1
    return list(np.split(order, bounds))


def _not_single(blocks: list[Block]) -> list[Block] | None:
    return blocks if any(len(block) > 1 for block in blocks if not isinstance(block, slice)) else None


def _checked_labels(partition: Any, n_rows: int) -> IntArray:
    labels = np.asarray(partition)
    if labels.ndim != 1 or len(labels) != n_rows:
        msg = f"partition, given as labels, must have one for each of the {n_rows} rows; its shape is {labels.shape}."
        raise ValueError(msg)
    if labels.dtype.kind == "O":
        kinds = {type(label) for label in labels.ravel()}
        if len(kinds) > 1 or any(label is None or label != label for label in labels.ravel()):  # noqa: PLR0124  NaN
            msg = "partition, given as labels, must hold labels of one kind, none of them missing."
            raise ValueError(msg)
    if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
        msg = "partition, given as labels, contains NaN or infinity."
        raise ValueError(msg)
    return np.unique(labels, return_inverse=True)[1]


class _Clusters:
    """k-means, again inside the clusters that are larger than a block."""

    def __init__(
        self, rows: Rows, scale: Any, block_size: int, random_state: np.random.RandomState, executor: Executor
    ) -> None:
        self._rows, self._scale, self._size = rows, scale, block_size
        self._random, self._executor = random_state, executor

    def split(self, index: IntArray) -> list[Block]:
        if len(index) <= self._size:
            return [index]
        n_clusters = -(-len(index) // self._size)
        labels = self._nearest(index, self._centres(index, n_clusters))
        parts = [part for part in (index[labels == label] for label in range(n_clusters)) if len(part)]
        if max(map(len, parts)) > _NO_PROGRESS * len(index):
            return [np.sort(part) for part in np.array_split(self._random.permutation(index), n_clusters)]
        return [block for part in parts for block in self.split(part)]

    def _centres(self, index: IntArray, n_clusters: int) -> FloatArray:
        number = min(len(index), _SAMPLE_PER_CLUSTER * n_clusters)
        sample = self._rows.take(np.sort(self._random.choice(index, number, replace=False)))
        return cluster_centres(sample, n_clusters, self._scale, self._random)

    def _nearest(self, index: IntArray, centres: FloatArray) -> IntArray:
        whole = len(index) == self._rows.n_rows
        rows = self._rows if whole else self._rows.subset(index)
        return nearest_points(rows, centres, self._scale, executor=self._executor)
