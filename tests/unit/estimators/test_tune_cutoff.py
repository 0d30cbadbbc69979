"""The search for a metric and a cut-off."""

import numpy as np
import pytest

from mercer import CompactClassifier, CompactRegressor, ExactRegressor, tune_cutoff
from mercer.engine import sparse_kernel
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import CompactGaussian, Gaussian, Wendland


@pytest.fixture
def rows():
    """Two features that matter, of very different units, and one that does not."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1500, 3)) * [1.0, 1000.0, 1.0]
    return X, np.sin(9 * X[:, 0]) + np.cos(X[:, 1] / 200) + 0.1 * rng.normal(size=len(X))


def test_what_is_found_is_the_best_that_was_tried(rows):
    found = tune_cutoff(CompactRegressor(), *rows, random_state=0)
    on_all = [trial for trial in found.trials if trial.n_rows == found.best.n_rows]
    assert found.best in on_all
    # A trial may have a smaller error by less than a standard error, but not by much.
    assert found.best.error <= 1.05 * min(trial.error for trial in on_all)
    assert all(trial.seconds > 0 for trial in found.trials)


def test_units_are_found_and_what_does_not_matter_is_left_out(rows):
    best = tune_cutoff(CompactRegressor(), *rows, random_state=0).best
    assert 100 < best.scales[1] / best.scales[0] < 10_000
    assert best.scales[2] / best.scales[0] >= 4


def test_the_model_has_the_neighbours_that_were_chosen_on_all_rows(rows):
    X, y = rows
    found = tune_cutoff(CompactRegressor(), X, y, max_rows=300, n_neighbours=(20, 40), random_state=0)
    model = found.model.fit(X, y)
    others = model.nnz_ / len(X) - 1
    assert others == pytest.approx(found.best.n_neighbours, rel=0.15)
    assert model.noise == found.best.noise
    assert min(trial.n_rows for trial in found.trials) == 300
    np.testing.assert_allclose(np.ptp(np.log(model.kernel.length_scale / found.best.scales)), 0, atol=1e-12)


@pytest.mark.slow
def test_the_rows_held_out_are_not_learned(rows):
    X, y = rows
    found = tune_cutoff(CompactRegressor(), X, y, held_out=0.2, random_state=0)
    assert found.best.n_rows == 1200


def test_classes(rows):
    X, y = rows
    labels = np.where(y > 0.5, "high", "low")
    found = tune_cutoff(CompactClassifier(Wendland(smoothness=0)), X, labels, random_state=0)
    assert found.best.error < 0.1
    assert found.model.kernel.smoothness == 0
    assert found.model.fit(X, labels).score(X, labels) > 0.9


@pytest.mark.slow
def test_several_outputs_and_another_kernel(rows):
    X, y = rows
    model = CompactRegressor(CompactGaussian(exponent=3))
    found = tune_cutoff(model, X, np.column_stack([y, -y]), max_trials=10, random_state=0)
    assert found.model.kernel.exponent == 3
    assert len(found.trials) == 10
    assert model.kernel.length_scale == 1.0, "what was given is left alone"


@pytest.mark.slow
def test_groups_share_a_scale(rows):
    X, y = rows
    X = np.column_stack([X, X[:, 0] > 0.5, X[:, 2] > 0.5])
    by_default = tune_cutoff(CompactRegressor(), X, y, random_state=0, max_trials=30)
    spread = np.std(X, axis=0)
    for trial in by_default.trials:
        relative = trial.scales if trial.scales[1] == 1 else trial.scales / spread
        assert relative[3] == pytest.approx(relative[4], rel=0.1), "features of two values go together"
    given = tune_cutoff(CompactRegressor(), X, y, groups=[[0, 1]], random_state=0, max_trials=30)
    starts = [trial.scales for trial in given.trials[:2]]
    for trial in given.trials:
        ratio = min((np.log(trial.scales / start) for start in starts), key=lambda r: np.ptp(r[2:]))
        np.testing.assert_allclose(ratio[2:], 0, atol=1e-12, err_msg="features in no group stay as they are")
        assert ratio[0] == pytest.approx(ratio[1], abs=1e-12)


def test_what_is_tried_is_told(rows, capsys):
    tune_cutoff(CompactRegressor(), *rows, max_trials=3, random_state=0, verbose=1)
    assert "mercer: trial 3: error" in capsys.readouterr().err


def test_the_same_random_state_finds_the_same(rows):
    first, second = (tune_cutoff(CompactRegressor(), *rows, max_trials=6, random_state=3) for _ in range(2))
    assert [trial.error for trial in first.trials] == [trial.error for trial in second.trials]


def test_what_cannot_be_tuned(rows):
    X, y = rows
    with pytest.raises(TypeError, match="must be a CompactRegressor or CompactClassifier, got ExactRegressor"):
        tune_cutoff(ExactRegressor(noise=0.1, intercept=False), X, y)
    with pytest.raises(TypeError, match="must be 'wendland' or of compact support"):
        tune_cutoff(CompactRegressor(Gaussian()), X, y)
    with pytest.raises(ValueError, match="held_out must be between 0 and 1"):
        tune_cutoff(CompactRegressor(), X, y, held_out=1.5)
    with pytest.raises(ValueError, match="y as long as X; got 1500 and 1499"):
        tune_cutoff(CompactRegressor(), X, y[:-1])
    with pytest.raises(ValueError, match="leave cutoff=None"):
        tune_cutoff(CompactRegressor(CompactGaussian(cutoff=0.1)), X, y)
    with pytest.raises(TypeError, match="got 'gaussian'"):
        tune_cutoff(CompactRegressor("gaussian"), X, y)
    for wrong in ({"noises": ()}, {"noises": (0.1, 0.0)}, {"n_neighbours": (-5,)}, {"max_trials": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be above zero"):
            tune_cutoff(CompactRegressor(), X, y, **wrong)
    with pytest.raises(ValueError, match=r"groups must hold numbers of features, 0 to 2; got \[7\]"):
        tune_cutoff(CompactRegressor(), X, y, groups=[[0, 7]])


@pytest.mark.parametrize("max_trials", [1, 2, 3])
@pytest.mark.parametrize("max_rows", [300, 50_000])
def test_no_more_trials_than_allowed(rows, max_trials, max_rows):
    found = tune_cutoff(CompactRegressor(), *rows, max_trials=max_trials, max_rows=max_rows, random_state=0)
    assert len(found.trials) == max_trials


def test_labels_in_a_column_are_labels(rows):
    X, y = rows
    flat = tune_cutoff(CompactClassifier(), X, y > 0.5, max_trials=3, random_state=0)
    column = tune_cutoff(CompactClassifier(), X, (y > 0.5)[:, np.newaxis], max_trials=3, random_state=0)
    assert [trial.error for trial in column.trials] == [trial.error for trial in flat.trials]


def test_what_does_not_fit_is_a_trial_that_was_refused(rows, monkeypatch):
    X, y = rows
    monkeypatch.setattr(sparse_kernel, "available_memory", lambda: 12 * 1350 * 80)
    found = tune_cutoff(CompactRegressor(), X, y, n_neighbours=(20, 30, 200), noises=(0.1,), random_state=0)
    assert found.best.n_neighbours in {20, 30}
    assert any(trial.n_neighbours == 200 and trial.error == np.inf for trial in found.trials)


def test_a_metric_that_is_refused_on_all_rows_is_not_the_end():
    lattice = np.stack(np.meshgrid(*[np.arange(4.0)] * 5), axis=-1).reshape(-1, 5)
    model = CompactRegressor(Wendland(smoothness=0, dimension=1))
    targets = np.random.default_rng(0).normal(size=len(lattice))
    found = tune_cutoff(model, lattice, targets, noises=(5.0, 1e-3), n_neighbours=(200,), max_rows=12, random_state=0)
    assert found.trials[0].error < np.inf
    assert found.best.noise == 5.0
    assert any(trial.noise == 1e-3 and trial.error == np.inf for trial in found.trials)


def test_a_kernel_that_is_never_definite():
    lattice = np.stack(np.meshgrid(*[np.arange(4.0)] * 5), axis=-1).reshape(-1, 5)
    model = CompactRegressor(Wendland(smoothness=0, dimension=1))
    with pytest.raises(NotPositiveDefiniteError, match="every trial was refused"):
        tune_cutoff(model, lattice, lattice[:, 0], noises=(1e-3,), n_neighbours=(200,), random_state=0)
