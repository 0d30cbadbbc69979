"""The one door to matplotlib. Plots are saved as PNG, SVG or PDF, by the file's ending."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mercer._typing import FloatArray
from mercer.reports.regret import Regret

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
    """Plot fits of one input with error bars side by side.

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
    lowest = min(float(np.min(y)), *(float(np.min(mean - 2 * std)) for mean, std in fits.values()))
    level = lowest - 0.05 * (float(np.max(y)) - lowest)  # of the ticks: below everything else
    for axis, (title, (mean, std)) in zip(axes, fits.items(), strict=True):
        for width, alpha in ((2.0, 0.15), (1.0, 0.25)):
            axis.fill_between(grid, mean - width * std, mean + width * std, color=_BLUE, alpha=alpha, linewidth=0)
        axis.plot(X, y, ".", color=_GREY, markersize=2.5, alpha=0.6, label="data")
        axis.plot(grid, mean, color=_BLUE, linewidth=1.8, label="mean, 1 and 2 std")
        if truth is not None:
            axis.plot(grid, truth, color=_RED, linewidth=1, linestyle="--", label="true function")
        if points is not None and title in points:
            axis.plot(points[title], np.full(len(points[title]), level), "|", color="black", ms=9, label="basis points")
        axis.set(title=title, xlabel="input")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("target")
    axes[-1].legend(loc="upper left", fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)


def plot_curves(
    path: str | Path,
    panels: Mapping[str, Mapping[str, Any]],
    *,
    x: FloatArray | None = None,
    xlabel: str,
    ylabel: str,
    highest: float | None = None,
    shared: bool = False,
    scale: str = "log",
) -> None:
    """Plot curves in panels.

    Parameters
    ----------
    path : path
    panels : mapping from title to a mapping from label to curve, (x, y) or, over a common x, y of shape (k,)
        The same label looks the same in all panels.
    x : array (k,) or None, default=None
        The common x.
    xlabel, ylabel : str
    highest : float or None, default=None
        Where the panels are cut off.
    shared : bool, default=False
        Whether all panels have the same axes.
    scale : str, default="log"
        Of both axes.
    """
    columns = min(2, len(panels))
    n_rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.6 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, columns, sharex=shared, sharey=shared, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    labels = dict.fromkeys(label for curves in panels.values() for label in curves)
    looks = {label: _LOOKS[i % len(_LOOKS)] for i, label in enumerate(labels)}
    for axis, (title, curves) in zip(axes.flat, panels.items(), strict=False):
        for label, curve in curves.items():
            color, line = looks[label]
            across, up = curve if x is None else (x, curve)
            axis.plot(across, up, linestyle=line, color=color, label=label, linewidth=1.8)
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
    save(figure, path)


def plot_importance(path: str | Path, importance: FloatArray, names: Sequence[str] | None = None) -> None:
    """Plot the share of each input in a metric as bars, the largest on top.

    Parameters
    ----------
    path : path
    importance : array (d,)
        ``metric_importance_`` of a kernel.
    names : sequence of str or None, default=None
        Names of the inputs; by default x0, x1, ...
    """
    importance = np.asarray(importance, dtype=np.float64)
    labels = [f"x{i}" for i in range(len(importance))] if names is None else list(names)
    order = np.argsort(importance, kind="stable")
    figure = Figure(figsize=(5.2, 1.0 + 0.22 * len(order)), layout="constrained")
    axis = figure.subplots()
    axis.barh([labels[i] for i in order], importance[order], color=_BLUE)
    axis.set_xlabel("share of the metric")
    axis.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def plot_regret(path: str | Path, regrets: Mapping[str, Regret]) -> None:
    """Plot the regret and its bound against the number of rows, a panel for each.

    Parameters
    ----------
    path : path
    regrets : mapping from title to Regret
        See ``mercer.reports.regret``. Where the regret is negative nothing is drawn, as axes are logarithmic.
    """
    panels = {}
    for title, found in regrets.items():
        n = np.arange(1.0, len(found.risk) + 1.0)
        some = np.unique(np.geomspace(1, len(n), 400).astype(int)) - 1
        positive = np.where(found.regret > 0, found.regret, np.nan)
        curves = {"risk of the model": found.risk, "of the comparator": found.comparator}
        curves |= {"regret": positive, "bound": found.bound}
        panels[title] = {label: (n[some], curve[some]) for label, curve in curves.items()}
    plot_curves(path, panels, xlabel="rows", ylabel="sum of regularised losses")


def save(figure: Figure, path: str | Path) -> None:
    """Save a figure; without its date, the same plot is the same file."""
    figure.savefig(path, dpi=110, metadata={"Date": None} if Path(path).suffix == ".svg" else None)
