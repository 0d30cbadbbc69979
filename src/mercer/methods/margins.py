r"""What rows contribute to a support vector machine, and the passes that sum it.

Every loss :math:`c\,\ell(e)` of an error :math:`e = y - f(x)` is the largest value of
:math:`\beta e - \varepsilon|\beta| - \beta^2/2\sigma` over an interval of β. For squared losses σ = 2c and β has no
bound; for the others |β| ≤ c, and there is no square. A term :math:`-(\beta - \bar\beta)^2/2\sigma`, with a σ of
choice, makes the latter smooth. So one formula gives the β of all of them,

.. math:: \beta = \operatorname{clip}\bigl(S_{\sigma\varepsilon}(\bar\beta + \sigma e)\bigr), \qquad
    S_t(z) = \operatorname{sign}(z)(|z| - t)_+.

A classifier has targets of ±1 and ε = 0, and only errors of the target's sign count: ℓ(e) is the hinge
:math:`(1 - yf)_+`. Rows are *free* if β is neither zero nor at its bound.

==============  ==========================  ==========  ==========================================
symbol          code                        shape       meaning
==============  ==========================  ==========  ==========================================
e               ``errors``                  (T, a)      of a functions
c = Cω          ``costs``                   (T, 1)      C times the weight of a row
β               ``pulls``                   (T, a)      -∂(cℓ)/∂f, the dual variables
β̄               ``anchors``                 (T, a)      0, or those of the last minimum
σ               ``stiffness``               (T, a)      curvature of the smoothed loss
σ/c             ``sharpness``               (a,)        of losses without squares
ε               ``tube``                                size of errors that cost nothing
==============  ==========================  ==========  ==========================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine import ArrayTable, Coding, Pass, RowPass, Tile
from mercer.engine.statistics import NormalPass
from mercer.solvers.dense import add_gram, mirror


@dataclass(frozen=True)
class Loss:
    """What is minimised over the rows."""

    cost: float  # C
    squared: bool
    tube: float = 0.0
    one_sided: bool = False  # whether only errors of the target's sign count: the hinge

    @classmethod
    def named(cls, name: str, cost: float, tube: float = 0.0) -> Loss:
        """The loss of that name."""
        return cls(cost, name.startswith("squared"), tube, one_sided=name.endswith("hinge"))


class Terms(NamedTuple):
    """What rows contribute, (T, a) each."""

    pulls: FloatArray
    stiffness: FloatArray
    free: AnyArray
    losses: FloatArray  # cℓ(e)
    strains: FloatArray  # (β - β̄)²/2σ
    smoothed: FloatArray  # βe - ε|β| less the strain


class Responses(NamedTuple):
    """What fixes β as a function of the errors of rows."""

    targets: FloatArray  # (T, a)
    costs: FloatArray  # (T, 1)
    anchors: FloatArray | float  # (T, a)
    stiffness: FloatArray  # (T, a)
    loss: Loss

    @classmethod
    def of(
        cls, targets: FloatArray, costs: FloatArray, anchors: FloatArray | float, loss: Loss, sharpness: FloatArray
    ) -> Responses:
        """For targets (T, a) and costs (T, 1); the sharpness (a,) is that of losses without squares."""
        stiffness = np.broadcast_to(2.0 * costs, targets.shape) if loss.squared else costs * sharpness
        return cls(targets, costs, anchors, stiffness, loss)

    def pulls(self, errors: FloatArray) -> FloatArray:
        """β for errors (..., T, a)."""
        moved = self.anchors + self.stiffness * errors
        if self.loss.one_sided:  # ε = 0
            pulls = np.where(moved * self.targets > 0, moved, 0.0)
        else:
            pulls = np.sign(moved) * np.maximum(np.abs(moved) - self.stiffness * self.loss.tube, 0.0)
        return pulls if self.loss.squared else np.clip(pulls, -self.costs, self.costs)


def row_terms(errors: FloatArray, responses: Responses) -> Terms:
    """β and what follows from it, for errors (T, a)."""
    targets, costs, anchors, stiffness, loss = responses
    pulls = responses.pulls(errors)
    free = pulls != 0
    if not loss.squared:
        free &= np.abs(pulls) < costs
    strains = (pulls - anchors) ** 2 / (2.0 * np.where(stiffness > 0, stiffness, 1.0))
    smoothed = pulls * errors - loss.tube * np.abs(pulls) - strains
    if loss.squared:
        return Terms(pulls, stiffness, free, smoothed, strains, smoothed)
    beyond = np.maximum((errors * targets if loss.one_sided else np.abs(errors)) - loss.tube, 0.0)
    return Terms(pulls, stiffness, free, costs * beyond, strains, smoothed)


@dataclass(frozen=True, eq=False)
class _Anchored(Coding):
    """Targets with anchors behind them, of labels that hold both."""

    inner: Coding
    n_functions: int

    @property
    def n_columns(self) -> int:
        return 2 * self.n_functions

    def columns(self, codes: FloatArray) -> FloatArray:  # type: ignore[override]
        return np.column_stack([self.inner.columns(codes[:, 0].astype(np.intp)), codes[:, 1:]])


def anchored(table: ArrayTable, n_functions: int) -> ArrayTable:
    """The table with room for the anchors of functions behind its targets."""
    targets: Any = table.targets if table.coding is None else table.labels
    room = np.zeros((table.n_rows, n_functions))
    coding = None if table.coding is None else _Anchored(table.coding, n_functions)
    return replace(table, labels=np.column_stack([targets, room]), coding=coding, shift=None)


@dataclass(frozen=True)
class Design:
    """[φ, 1, 0] of the rows of a tile: computed, or the rows of the table themselves where they are stored."""

    work: NormalPass | None
    n_features: int  # m
    width: int  # m + 1, and padding

    @classmethod
    def of(cls, work: NormalPass) -> Design:
        """Features that are computed from rows."""
        return cls(work, work.features.n_features, work.width)

    def stored(self) -> Design:
        """The same for a table whose rows are these features."""
        return Design(None, self.n_features, self.width)

    def prepare(self) -> None:
        """Bind the kernel to the points."""
        if self.work is not None:
            self.work.prepare()

    def values(self, tile: Tile) -> FloatArray:
        """Features of a tile, (T, width)."""
        if self.work is None:
            return tile.rows
        return self.work.values(Tile(tile.rows, np.empty((tile.n_rows, 0)), None, tile.first, tile.scratch))


@dataclass(frozen=True)
class StoreDesign(RowPass):
    """The features of all rows."""

    design: Design

    name = "features"

    @property
    def width(self) -> int:
        """Of the features, twice."""
        return 2 * self.design.width

    @property
    def shape(self) -> tuple[int, ...]:
        """One number per feature."""
        return (self.design.width,)

    def prepare(self) -> None:
        """Bind the kernel to the points."""
        self.design.prepare()

    def apply(self, tile: Tile, out: AnyArray) -> None:
        """Copy the tile."""
        out[...] = self.design.values(tile)


@dataclass(frozen=True)
class _Functions:
    """Some of the functions that are fitted, at rows whose targets are those of all functions, and perhaps anchors."""

    design: Design
    weights: FloatArray  # (width, a): coefficients of the features, intercepts, zeros
    columns: IntArray  # (a,): their targets
    places: IntArray  # (a,): their anchors, of those that may follow the targets
    sharpness: FloatArray  # (a,)
    n_columns: int  # targets of a row
    loss: Loss

    @property
    def width(self) -> int:
        return self.design.width + 16 * len(self.columns)

    def prepare(self) -> None:
        self.design.prepare()

    def responses(self, tile: Tile) -> Responses:
        """How the rows respond to errors."""
        is_anchored = tile.targets.shape[1] > self.n_columns
        anchors = tile.targets[:, self.n_columns + self.places] if is_anchored else 0.0
        weights = np.ones(tile.n_rows) if tile.weights is None else tile.weights
        costs = self.loss.cost * weights[:, np.newaxis]
        return Responses.of(tile.targets[:, self.columns], costs, anchors, self.loss, self.sharpness)


@dataclass(frozen=True)
class Pulls(_Functions, RowPass):
    """β of every row and function."""

    name = "dual variables"

    @property
    def shape(self) -> tuple[int, ...]:
        """One number per function."""
        return (len(self.columns),)

    def apply(self, tile: Tile, out: AnyArray) -> None:
        """β of the tile."""
        responses = self.responses(tile)
        out[...] = responses.pulls(responses.targets - self.design.values(tile) @ self.weights)


class Sums(NamedTuple):
    """Sums over all rows for one function, those by sign over rows of β > 0 and of β < 0."""

    hessian: FloatArray  # Σ σ [φ, 1][φ, 1]ᵀ over free rows, (m + 1, m + 1)
    pulls: FloatArray  # Σ β [φ, 1] by sign, (2, m + 1)
    gains: FloatArray  # Σ βy - ε|β| by sign, (2,)
    support: FloatArray  # number of rows by sign, (2,)
    losses: FloatArray  # Σ cℓ(e) by sign, (2,): of squared losses Σ β²/2σ
    totals: FloatArray  # Σ βe - ε|β| - (β - β̄)²/2σ, and the last term alone, (2,)
    slopes: FloatArray  # -Σ β [φ, 1]ᵀd at other points of a line in the direction d, (k,)


_NUMBERS = 4  # pairs of them: gains, support, losses, totals


@dataclass(frozen=True)
class Evaluate(_Functions, Pass[FloatArray, list[Sums]]):
    """Value, gradient, Hessian and dual value of functions in one pass; only free rows enter the Hessian.

    And slopes along lines, at ``weights + steps * directions``.
    """

    directions: FloatArray  # (width, a)
    steps: FloatArray  # (k, a)

    name, fewest = "support vectors", 256

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        a, w = len(self.columns), self.design.width
        return a * w * w, 2 * a * w, 2 * a * _NUMBERS, self.steps.size

    @property
    def state_numbers(self) -> int:  # type: ignore[override]
        """Of the sums."""
        return sum(self._sizes)

    def start(self) -> FloatArray:
        """All sums in one array."""
        return np.zeros(self.state_numbers)

    def _parts(self, state: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        a, w = len(self.columns), self.design.width
        hessians, pulls, numbers, slopes = np.split(state, np.cumsum(self._sizes)[:-1])
        shapes = hessians.reshape(a, w, w), pulls.reshape(w, 2, a), numbers.reshape(_NUMBERS, 2, a)
        return *shapes, slopes.reshape(self.steps.shape)

    def add(self, state: FloatArray, tile: Tile) -> None:
        """One product for the values, one for the gradients, one for the Hessian of each function."""
        hessians, pulls, numbers, slopes = self._parts(state)
        values, responses = self.design.values(tile), self.responses(tile)
        targets, errors = responses.targets, responses.targets - values @ self.weights
        terms = row_terms(errors, responses)
        if np.any(self.directions):
            along = values @ self.directions
            for k, step in enumerate(self.steps):
                slopes[k] -= np.einsum("ta,ta->a", responses.pulls(errors - step * along), along)
        signs = np.stack([terms.pulls > 0, terms.pulls < 0], axis=1)  # (T, 2, a)
        halves = signs * terms.pulls[:, np.newaxis]
        pulls += (values.T @ halves.reshape(tile.n_rows, -1)).reshape(pulls.shape)
        gains = terms.pulls * targets - self.loss.tube * np.abs(terms.pulls)
        for place, each in enumerate((gains, np.ones(gains.shape), terms.losses)):
            numbers[place] += np.einsum("tsa,ta->sa", signs, each)
        numbers[3] += np.stack([np.sum(terms.smoothed, axis=0), np.sum(terms.strains, axis=0)])
        for j, hessian in enumerate(hessians):
            free = np.flatnonzero(terms.free[:, j])
            add_gram(hessian, values[free] * np.sqrt(terms.stiffness[free, j, np.newaxis]))

    def finish(self, state: FloatArray) -> list[Sums]:
        """The sums of each function, without the padding."""
        hessians, pulls, numbers, slopes = self._parts(state)
        used, found = self.design.n_features + 1, []
        for j, padded in enumerate(hessians):
            hessian = np.ascontiguousarray(padded[:used, :used])
            mirror(hessian)
            gains, support, losses, totals = numbers[:, :, j].copy()  # a view would keep all Hessians alive
            along = slopes[:, j].copy()
            found.append(Sums(hessian, pulls[:used, :, j].T.copy(), gains, support, losses, totals, along))
        return found
