"""The only code that touches all rows: tiles of bounded memory in, reductions out.

Where rows are (``table``), who computes (``executors``) and what is computed (passes: ``statistics``,
``products`` and others) are independent of each other.
"""

from mercer.engine.conditional import ConditionalStatistics, Influences, conditional_statistics, influences
from mercer.engine.executors.sequence import Sequence
from mercer.engine.executors.threads import Threads, blas_threads
from mercer.engine.groups import by_group, grouped, statistics_of_groups
from mercer.engine.memory import available_memory
from mercer.engine.nearest import nearest_points, nearest_rows, neighbour_distance
from mercer.engine.passes import Executor, Pass, RowPass, Scratch, Tile, given_executor, using
from mercer.engine.prequential import Moments
from mercer.engine.products import (
    Evaluation,
    OnFeatures,
    column_squares,
    extend_factor,
    feature_matrix,
    features_times,
    gram_matrix,
    kernel_diagonal,
    kernel_matrix,
    kernel_times,
    squared_projections,
    transposed_times,
)
from mercer.engine.sequential import SequentialLearner, learn_table
from mercer.engine.sparse_kernel import SparseGram, SparseKernel
from mercer.engine.statistics import Features, NormalStatistics, normal_statistics, row_moments
from mercer.engine.stochastic import GradientLearner, Units, descend_table
from mercer.engine.table import (
    ArrayRows,
    ArrayTable,
    Block,
    Coding,
    Rows,
    SomeRows,
    SparseRows,
    Table,
    as_rows,
)
from mercer.engine.weights import are_counts, left_out_parts, number_of, relative_weights, unit_of

__all__ = [
    "ArrayRows",
    "ArrayTable",
    "Block",
    "Coding",
    "ConditionalStatistics",
    "Evaluation",
    "Executor",
    "Features",
    "GradientLearner",
    "Influences",
    "Moments",
    "NormalStatistics",
    "OnFeatures",
    "Pass",
    "RowPass",
    "Rows",
    "Scratch",
    "Sequence",
    "SequentialLearner",
    "SomeRows",
    "SparseGram",
    "SparseKernel",
    "SparseRows",
    "Table",
    "Threads",
    "Tile",
    "Units",
    "are_counts",
    "as_rows",
    "available_memory",
    "blas_threads",
    "by_group",
    "column_squares",
    "conditional_statistics",
    "descend_table",
    "extend_factor",
    "feature_matrix",
    "features_times",
    "given_executor",
    "gram_matrix",
    "grouped",
    "influences",
    "kernel_diagonal",
    "kernel_matrix",
    "kernel_times",
    "learn_table",
    "left_out_parts",
    "nearest_points",
    "nearest_rows",
    "neighbour_distance",
    "normal_statistics",
    "number_of",
    "relative_weights",
    "row_moments",
    "squared_projections",
    "statistics_of_groups",
    "transposed_times",
    "unit_of",
    "using",
]
