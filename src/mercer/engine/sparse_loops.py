"""Loops over the entries of a sparse kernel matrix, compiled."""

from typing import Any

from mercer._jit import jit, jit_inner
from mercer._typing import FloatArray, IntArray


@jit
def count(index: IntArray, counts: IntArray) -> None:
    """Count how often each column occurs."""
    for e in range(len(index)):
        counts[index[e]] += 1


@jit
def mirror(part: Any, start: Any, filled: IntArray, index: IntArray, values: FloatArray) -> None:
    """Put entries of the upper triangle into their row and, mirrored, into that of their column.

    Rows come in order. So when one comes what precedes its diagonal is there, with ascending columns.
    """
    counts, columns, numbers = part
    e = 0
    for i in range(len(counts)):
        for _ in range(counts[i]):
            row, column = start + i, columns[e]
            index[filled[row]], values[filled[row]] = column, numbers[e]
            filled[row] += 1
            if column > row:
                index[filled[column]], values[filled[column]] = row, numbers[e]
                filled[column] += 1
            e += 1


@jit
def multiply(starts: IntArray, index: IntArray, values: FloatArray, vectors: FloatArray, out: FloatArray) -> None:
    """Rows of a sparse matrix times dense vectors: most often one, or the targets and a column of ones."""
    for i in range(len(out)):
        if vectors.shape[1] == 1:
            total = 0.0
            for e in range(starts[i], starts[i + 1]):
                total += values[e] * vectors[index[e], 0]
            out[i, 0] = total
        elif vectors.shape[1] == 2:
            first, second = 0.0, 0.0
            for e in range(starts[i], starts[i + 1]):
                j, value = index[e], values[e]
                first += value * vectors[j, 0]
                second += value * vectors[j, 1]
            out[i, 0], out[i, 1] = first, second
        else:
            _multiply_row(index[starts[i] : starts[i + 1]], values[starts[i] : starts[i + 1]], vectors, out[i])


@jit_inner
def _multiply_row(index: IntArray, values: FloatArray, vectors: FloatArray, out: FloatArray) -> None:
    """Sums that stay in registers: four at a time, then one by one."""
    whole = len(out) // 4 * 4
    for c in range(0, whole, 4):
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for e in range(len(index)):
            j, value = index[e], values[e]
            s0 += value * vectors[j, c]
            s1 += value * vectors[j, c + 1]
            s2 += value * vectors[j, c + 2]
            s3 += value * vectors[j, c + 3]
        out[c], out[c + 1], out[c + 2], out[c + 3] = s0, s1, s2, s3
    for c in range(whole, len(out)):
        total = 0.0
        for e in range(len(index)):
            total += values[e] * vectors[index[e], c]
        out[c] = total
