"""Ways to part rows into the blocks of a committee."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer._typing import IntArray
from mercer.basis.kmeans import cluster_centres, metric_of
from mercer.engine import ArrayTable, Block, Executor, Rows, nearest_points
from mercer.kernels import Kernel
from mercer.methods.inputs import used_rows

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

    ``partition`` is one of ``PARTITIONS`` or has a label for each row; labels make blocks of any size, the others of at
    most ``block_size`` rows. The kernel's length scales, one per feature, are the metric of k-means.
    """
    used = used_rows(table, noise)
    if not isinstance(partition, str):
        return _by_label(_checked_labels(partition, table.n_rows), used)
    if partition not in PARTITIONS:
        names = ", ".join(repr(name) for name in PARTITIONS)
        msg = f"partition must be one of {names}, or an array of labels; got {partition!r}."
        raise ValueError(msg)
    if block_size == 1:
        return None
    if partition == "order":
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
    some = rows if len(index) == rows.n_rows else rows.subset(index)
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
            msg = "partition, given as labels, must hold labels of one kind, none of them missing."
            raise ValueError(msg)
    if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
        msg = "partition, given as labels, contains NaN or infinity."
        raise ValueError(msg)
    return np.unique(labels, return_inverse=True)[1]
