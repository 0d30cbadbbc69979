"""Linear algebra: solvers know matrices, not kernels."""
