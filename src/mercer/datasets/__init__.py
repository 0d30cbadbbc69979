"""Data to try things on: generated sets, and loaders of public ones."""

from mercer.datasets.public import load_abalone, load_boston, load_forest, load_laser
from mercer.datasets.synthetic import make_bumps, make_clusters, make_waves

__all__ = ["load_abalone", "load_boston", "load_forest", "load_laser", "make_bumps", "make_clusters", "make_waves"]
