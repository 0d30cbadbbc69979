"""Values over a grid, drawn as colours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mercer._typing import FloatArray
from mercer.reports.plots import save

__all__ = ["plot_maps"]


def plot_maps(
    path: str | Path,
    panels: Mapping[str, FloatArray],
    *,
    x: FloatArray,
    y: FloatArray,
    xlabel: str,
    ylabel: str,
    label: str,
) -> None:
    """Plot values over a grid as colours, panels side by side with one scale of colours.

    Parameters
    ----------
    path : path
    panels : mapping from title to array (len(y), len(x))
    x, y : arrays, positive, at least two values each
        The grid; both axes are logarithmic.
    xlabel, ylabel, label : str
        Of the axes, and of the colours.
    """
    figure = Figure(figsize=(4.6 * len(panels) + 0.8, 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    lowest = min(float(np.min(values)) for values in panels.values())
    highest = max(float(np.max(values)) for values in panels.values())
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        mesh = axis.pcolormesh(_edges(x), _edges(y), values, vmin=lowest, vmax=highest, cmap="viridis")
        axis.set(xscale="log", yscale="log", xlabel=xlabel)
        axis.set_title(title, fontsize=10)
    axes[0].set_ylabel(ylabel)
    figure.colorbar(mesh, ax=list(axes), label=label)
    save(figure, path)


def _edges(centres: FloatArray) -> FloatArray:
    """Bounds of cells around centres, half-way between them on a logarithmic axis."""
    logarithms = np.log(centres)
    middle = (logarithms[1:] + logarithms[:-1]) / 2
    ends = 2 * logarithms[[0, -1]] - middle[[0, -1]]
    return np.asarray(np.exp(np.concatenate([ends[:1], middle, ends[1:]])))
