"""Loops over the entries of a sparse kernel matrix, compiled."""

from typing import Any

from mercer._jit import jit
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
    """Rows of a sparse matrix times dense vectors (n, p), with sums that stay in registers: four at a time, then two.

    If p is odd the last one is computed twice, which takes no longer.
    """
    last = vectors.shape[1] - 1
    for i in range(len(out)):
        columns, numbers = index[starts[i] : starts[i + 1]], values[starts[i] : starts[i + 1]]
        c = 0
        while c + 3 <= last:
            s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
            for e in range(len(columns)):
                j, value = columns[e], numbers[e]
                s0 += value * vectors[j, c]
                s1 += value * vectors[j, c + 1]
                s2 += value * vectors[j, c + 2]
                s3 += value * vectors[j, c + 3]
            out[i, c], out[i, c + 1], out[i, c + 2], out[i, c + 3] = s0, s1, s2, s3
            c += 4
        while c <= last:
            s0, s1, d = 0.0, 0.0, min(c + 1, last)
            for e in range(len(columns)):
                j, value = columns[e], numbers[e]
                s0 += value * vectors[j, c]
                s1 += value * vectors[j, d]
            out[i, c], out[i, d] = s0, s1
            c += 2
