"""A committee computed again at the queries themselves.

At its basis points a committee combines what each block knows of those very values; anywhere else it interpolates. So
the best basis for a set of queries is the set (footnote 2 of Tresp and Schwaighofer).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mercer._typing import FloatArray
from mercer.basis import Basis
from mercer.engine import ArrayRows, ConditionalStatistics, Executor, Rows
from mercer.methods.committee import Batch, CommitteeSummary
from mercer.methods.frame import Frame
from mercer.model import as_dtype

__all__ = ["transduce"]


def transduce(
    summary: CommitteeSummary,
    batches: Sequence[Batch],
    queries: Rows,
    *,
    batch_size: int,
    return_std: bool,
    return_cov: bool,
    executor: Executor,
) -> tuple[FloatArray, FloatArray | None, list[ConditionalStatistics]]:
    """Mean (n, p) at the queries, the standard deviation or covariance asked for, and the statistics of each pass.

    Each batch of queries is one pass over the training rows.
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
        local = _at(points, summary, batches, executor)
        rows, expansion = ArrayRows(points, checked=True), local.expansion
        mean[index] = expansion.evaluate(rows, executor=executor)
        if return_cov:
            spread = expansion.covariance(rows, executor=executor)
        elif spread is not None:
            spread[index] = np.sqrt(expansion.variances(rows, executor=executor))
        passes.append(local.statistics)
    return as_dtype(mean, queries.dtype), spread, passes


def _at(
    points: FloatArray, summary: CommitteeSummary, batches: Sequence[Batch], executor: Executor
) -> CommitteeSummary:
    basis = Basis(points=points.astype(np.float64))
    frame = Frame.build(summary.frame.kernel, basis, summary.frame.dtype, steady=True)
    empty = ConditionalStatistics.zeros(len(frame.lower), len(summary.target_shift))
    local = replace(summary, frame=frame, statistics=empty)
    for batch in batches:
        local = local.plus(batch, executor)
    return local
