"""β, losses and curvatures of rows, against the definitions of the losses."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from mercer.engine import ArrayTable, Features, Threads, as_rows
from mercer.engine.statistics import NormalPass
from mercer.kernels import Gaussian
from mercer.methods.margins import Design, Evaluate, Loss, Responses, anchored, row_terms

NAMES = ["hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive"]
every_loss = pytest.mark.parametrize("name", NAMES)
COST, TUBE = 0.7, 0.3


def loss_of(name):
    return Loss.named(name, COST, 0.0 if name.endswith("hinge") else TUBE)


def define(name, f, y):
    """The loss by its formula."""
    size = max(1 - y * f, 0.0) if name.endswith("hinge") else max(abs(y - f) - TUBE, 0.0)
    return COST * (size**2 if name.startswith("squared") else size)


def draw(name, n=40):
    rng = np.random.default_rng(0)
    targets = np.where(rng.random(n) < 0.5, 1.0, -1.0) if name.endswith("hinge") else rng.normal(size=n)
    return rng.normal(size=n), targets


def terms_of(name, values, targets, anchors=0.0, sharpness=2.0):
    costs = np.full((len(values), 1), COST)
    errors = (targets - values)[:, np.newaxis]
    responses = Responses.of(targets[:, np.newaxis], costs, anchors, loss_of(name), np.array([sharpness]))
    return row_terms(errors, responses)


@every_loss
def test_losses_are_those_of_their_formulas(name):
    values, targets = draw(name)
    expected = [define(name, f, y) for f, y in zip(values, targets, strict=True)]
    np.testing.assert_allclose(terms_of(name, values, targets).losses[:, 0], expected, atol=1e-14)


@every_loss
def test_pulls_are_slopes_and_stiffness_their_slope(name):
    values, targets = draw(name)
    anchors = np.zeros((len(values), 1))
    if not loss_of(name).squared:  # feasible ones
        anchors = 0.5 * terms_of(name, values[::-1], targets).pulls
    step = 1e-6
    below, at, above = (terms_of(name, values + s, targets, anchors) for s in (-step, 0.0, step))
    slopes = -(above.smoothed - below.smoothed) / (2 * step)
    np.testing.assert_allclose(at.pulls, slopes, atol=1e-6)
    curvature = -(above.pulls - below.pulls) / (2 * step)
    inside = (above.free == below.free)[:, 0]  # not at a kink
    expected = np.where(at.free, at.stiffness, 0.0)
    np.testing.assert_allclose(curvature[inside], expected[inside], atol=1e-6)
    assert np.any(at.free)
    assert np.any(~at.free)


@pytest.mark.parametrize("name", ["hinge", "epsilon_insensitive"])
def test_the_smoothed_loss_is_the_moreau_envelope_without_anchors(name):
    # max over β of βe - cℓ*(β) - β²/2σ = min over t of cℓ(t) + σ(t - f)²/2
    values, targets = draw(name, 8)
    sharpness = 1.5
    found = terms_of(name, values, targets, sharpness=sharpness).smoothed[:, 0]
    for f, y, smoothed in zip(values, targets, found, strict=True):
        objective = lambda t, f=f, y=y: define(name, t, y) + COST * sharpness * (t - f) ** 2 / 2  # noqa: E731
        expected = minimize_scalar(objective, bounds=(-10, 10), method="bounded", options={"xatol": 1e-10}).fun
        assert abs(smoothed - expected) < 1e-7


def test_rows_of_weight_zero_contribute_nothing():
    for name in NAMES:
        values, targets = draw(name, 3)
        zeros = np.zeros((3, 1))
        errors, sharpness = (targets - values)[:, np.newaxis], np.ones(1)
        responses = Responses.of(targets[:, np.newaxis], zeros, zeros, loss_of(name), sharpness)
        for each in row_terms(errors, responses):
            assert not np.any(each)


@every_loss
def test_slopes_along_lines_are_differences_of_values(name):
    rng = np.random.default_rng(1)
    rows, targets = rng.normal(size=(40, 2)), np.column_stack([draw(name)[1], draw(name)[1][::-1]])
    design = Design.of(NormalPass(Features(Gaussian(), rows[:5]), 0))
    weights, directions = np.zeros((2, design.width, 2))
    weights[:6], directions[:6] = rng.normal(size=(2, 6, 2))
    steps, small = np.array([[0.5, -0.25], [-1.0, 2.0]]), 1e-5
    table = ArrayTable(as_rows(rows), targets, rng.uniform(0, 2, 40))
    if not loss_of(name).squared:
        table = anchored(table, 2)
        table.labels[:, 2:] = 0.3 * targets

    def evaluate(at, directions=directions, steps=steps):
        work = Evaluate(
            design, at, np.array([0, 1]), np.array([0, 1]), np.array([1.5, 0.7]), 2, loss_of(name), directions, steps
        )
        return Threads(1).reduce(work, table)

    found = np.array([each.slopes for each in evaluate(weights)]).T
    for k, step in enumerate(steps):
        above, below = (
            np.array([each.totals[0] for each in evaluate(weights + (step + s) * directions)]) for s in (small, -small)
        )
        np.testing.assert_allclose(found[k], (above - below) / (2 * small), rtol=1e-4, atol=1e-4)
