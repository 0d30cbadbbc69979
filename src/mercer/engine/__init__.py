"""The only code that touches all rows: tiles of bounded memory in, reductions out.

Where rows are (``table``), who computes (``executors``) and what is computed (passes: ``statistics``,
``products`` and others) are independent of each other.
"""

from mercer.engine.clusters import as_source, ask_lazily, is_collection, on_its_cluster
from mercer.engine.columns import Described, describe, mean_targets
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
from mercer.engine.rows import ArrayRows, Block, Rows, SomeRows, SparseRows, as_rows
from mercer.engine.sequential import SequentialLearner, learn_table
from mercer.engine.source import Chunk, Field, Piece, Source, SourceColumn, SourceRows
from mercer.engine.sparse_kernel import SparseGram, SparseKernel
from mercer.engine.statistics import Features, NormalStatistics, normal_statistics, row_moments
from mercer.engine.stochastic import GradientLearner, Units, descend_table
from mercer.engine.table import ArrayTable, Coding, Table
from mercer.engine.weights import are_counts, left_out_parts, number_of, relative_weights, unit_of

__all__ = [
    "ArrayRows",
    "ArrayTable",
    "Block",
    "Chunk",
    "Coding",
    "ConditionalStatistics",
    "Described",
    "Evaluation",
    "Executor",
    "Features",
    "Field",
    "GradientLearner",
    "Influences",
    "Moments",
    "NormalStatistics",
    "OnFeatures",
    "Pass",
    "Piece",
    "RowPass",
    "Rows",
    "Scratch",
    "Sequence",
    "SequentialLearner",
    "SomeRows",
    "Source",
    "SourceColumn",
    "SourceRows",
    "SparseGram",
    "SparseKernel",
    "SparseRows",
    "Table",
    "Threads",
    "Tile",
    "Units",
    "are_counts",
    "as_rows",
    "as_source",
    "ask_lazily",
    "available_memory",
    "blas_threads",
    "by_group",
    "column_squares",
    "conditional_statistics",
    "descend_table",
    "describe",
    "extend_factor",
    "feature_matrix",
    "features_times",
    "given_executor",
    "gram_matrix",
    "grouped",
    "influences",
    "is_collection",
    "kernel_diagonal",
    "kernel_matrix",
    "kernel_times",
    "learn_table",
    "left_out_parts",
    "mean_targets",
    "nearest_points",
    "nearest_rows",
    "neighbour_distance",
    "normal_statistics",
    "number_of",
    "on_its_cluster",
    "relative_weights",
    "row_moments",
    "squared_projections",
    "statistics_of_groups",
    "transposed_times",
    "unit_of",
    "using",
]
