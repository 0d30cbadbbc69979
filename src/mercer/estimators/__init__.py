"""Thin scikit-learn shells, one algorithm per file."""
