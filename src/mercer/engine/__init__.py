"""The only code that touches all rows: tiles of bounded memory in, reductions out.

Where rows live (``rows``) and who works on them (``executors``) are independent of each other and of what is computed
(``statistics``, ``products``).
"""

from mercer.engine.conditional import ConditionalStatistics, conditional_statistics
from mercer.engine.executors.base import Executor
from mercer.engine.executors.threads import Threads, blas_threads
from mercer.engine.features import Features
from mercer.engine.gradients import FeatureGradient, Pull, add_parameters, feature_gradient
from mercer.engine.memory import available_memory
from mercer.engine.moments import row_moments
from mercer.engine.nearest import nearest_points, nearest_rows, neighbour_distance
from mercer.engine.products import (
    column_squares,
    extend_factor,
    features_times,
    gram_matrix,
    gram_times,
    kernel_diagonal,
    kernel_matrix,
    kernel_times,
    squared_projections,
    transposed_times,
)
from mercer.engine.residuals import ResidualProducts, residual_products
from mercer.engine.rows import ArrayRows, Rows, SomeRows, as_rows
from mercer.engine.sequential import SequentialLearner
from mercer.engine.sparse_kernel import SparseGram, SparseKernel
from mercer.engine.statistics import NormalStatistics, normal_statistics
from mercer.engine.tiles import tile_rows
from mercer.engine.walk import Block, map_rows, reduce_blocks, reduce_rows

__all__ = [
    "ArrayRows",
    "Block",
    "ConditionalStatistics",
    "Executor",
    "FeatureGradient",
    "Features",
    "NormalStatistics",
    "Pull",
    "ResidualProducts",
    "Rows",
    "SequentialLearner",
    "SomeRows",
    "SparseGram",
    "SparseKernel",
    "Threads",
    "add_parameters",
    "as_rows",
    "available_memory",
    "blas_threads",
    "column_squares",
    "conditional_statistics",
    "extend_factor",
    "feature_gradient",
    "features_times",
    "gram_matrix",
    "gram_times",
    "kernel_diagonal",
    "kernel_matrix",
    "kernel_times",
    "map_rows",
    "nearest_points",
    "nearest_rows",
    "neighbour_distance",
    "normal_statistics",
    "reduce_blocks",
    "reduce_rows",
    "residual_products",
    "row_moments",
    "squared_projections",
    "tile_rows",
    "transposed_times",
]
