"""The one door to matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mercer._typing import FloatArray

__all__ = ["plot_curves", "plot_fits", "plot_maps", "plot_panels"]

_BLUE, _GREY, _RED = "#2b6cb0", "#718096", "#c53030"
_LOOKS = (
    (_BLUE, "-"),
    (_RED, "--"),
    (_GREY, ":"),
    ("#2f855a", "-."),
    ("#b7791f", (0, (1, 1))),
    ("#6b46c1", "-"),
    ("#2c7a7b", "--"),
    ("#97266d", "-."),
    ("#1a202c", "-"),
)


def plot_fits(
    path: str | Path,
    *,
    X: FloatArray,
    y: FloatArray,
    grid: FloatArray,
    fits: Mapping[str, tuple[FloatArray, FloatArray]],
    truth: FloatArray | None = None,
    points: Mapping[str, FloatArray] | None = None,
) -> None:
    """Plot fits of one input with error bars side by side, and save them (PNG, SVG or PDF by the file's ending).

    Parameters
    ----------
    path : path
    X, y : arrays (n,)
        The data.
    grid : array (k,)
        Where the fits are drawn.
    fits : mapping from title to (mean, std), each (k,)
    truth : array (k,) or None
        The function behind the data.
    points : mapping from title to array, or None
        Basis points, drawn as ticks.
    """
    figure = Figure(figsize=(5.2 * len(fits), 3.9), layout="constrained")
    axes = figure.subplots(1, len(fits), sharey=True, squeeze=False)[0]
    lowest = min(float(np.min(mean - 2 * std)) for mean, std in fits.values())
    lowest = min(lowest, float(np.min(y)))
    level = lowest - 0.05 * (float(np.max(y)) - lowest)  # of the ticks: below everything else
    for axis, (title, (mean, std)) in zip(axes, fits.items(), strict=True):
        _draw_fit(axis, X, y, grid, mean, std)
        if truth is not None:
            axis.plot(grid, truth, color=_RED, linewidth=1, linestyle="--", label="true function")
        if points is not None and title in points:
            axis.plot(points[title], np.full(len(points[title]), level), "|", color="black", ms=9, label="basis points")
        axis.set_title(title)
        axis.set_xlabel("input")
    axes[0].set_ylabel("target")
    axes[-1].legend(loc="upper left", fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)


def _draw_fit(axis: Any, X: FloatArray, y: FloatArray, grid: FloatArray, mean: FloatArray, std: FloatArray) -> None:
    for width, alpha in ((2.0, 0.15), (1.0, 0.25)):
        axis.fill_between(grid, mean - width * std, mean + width * std, color=_BLUE, alpha=alpha, linewidth=0)
    axis.plot(X, y, ".", color=_GREY, markersize=2.5, alpha=0.6, label="data")
    axis.plot(grid, mean, color=_BLUE, linewidth=1.8, label="mean, 1 and 2 std")
    axis.spines[["top", "right"]].set_visible(False)


def plot_panels(
    path: str | Path,
    x: FloatArray,
    panels: Mapping[str, Mapping[str, FloatArray]],
    *,
    xlabel: str,
    ylabel: str,
    highest: float | None = None,
    shared: bool = True,
) -> None:
    """Plot curves over a common x in panels, both axes logarithmic, and save them (by the file's ending).

    Parameters
    ----------
    path : path
    x : array (k,)
    panels : mapping from title to a mapping from label to curve (k,)
        The same label looks the same in all panels.
    xlabel, ylabel : str
    highest : float or None
        Where the panels are cut off.
    shared : bool, default=True
        Whether all panels have the same y axis.
    """
    with_x = {title: {label: (x, curve) for label, curve in curves.items()} for title, curves in panels.items()}
    plot_curves(path, with_x, xlabel=xlabel, ylabel=ylabel, highest=highest, shared=shared)


def plot_curves(
    path: str | Path,
    panels: Mapping[str, Mapping[str, tuple[FloatArray, FloatArray]]],
    *,
    xlabel: str,
    ylabel: str,
    highest: float | None = None,
    shared: bool = False,
    scale: str = "log",
) -> None:
    """Plot curves (x, y), each with an x of its own, as ``plot_panels`` does; ``scale`` is that of both axes."""
    columns = min(2, len(panels))
    n_rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.6 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, columns, sharex=shared, sharey=shared, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    labels = list(dict.fromkeys(label for curves in panels.values() for label in curves))
    looks = {label: _LOOKS[i % len(_LOOKS)] for i, label in enumerate(labels)}
    for axis, (title, curves) in zip(axes.flat, panels.items(), strict=False):
        for label, (x, y) in curves.items():
            color, line = looks[label]
            axis.plot(x, y, linestyle=line, color=color, label=label, linewidth=1.8)
        axis.set(xscale=scale, yscale=scale)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=8, frameon=False)
    if highest is not None:
        axes[0, 0].set_ylim(top=highest)
    for axis in axes[-1]:
        axis.set_xlabel(xlabel)
    for axis in axes[:, 0]:
        axis.set_ylabel(ylabel)
    _save(figure, path)


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
    """Plot values over a grid as colours, panels side by side with one scale of colours, and save them.

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
    _save(figure, path)


def _edges(centres: FloatArray) -> FloatArray:
    """Bounds of cells around centres, half-way between them on a logarithmic axis."""
    logarithms = np.log(centres)
    middle = (logarithms[1:] + logarithms[:-1]) / 2
    ends = 2 * logarithms[[0, -1]] - middle[[0, -1]]
    return np.asarray(np.exp(np.concatenate([ends[:1], middle, ends[1:]])))


def _save(figure: Figure, path: str | Path) -> None:
    # Without its date, the same plot is the same file.
    figure.savefig(path, dpi=110, metadata={"Date": None} if Path(path).suffix == ".svg" else None)
