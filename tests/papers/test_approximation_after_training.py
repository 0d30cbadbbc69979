"""The experiment with approximation after training, on a small scale: what must hold whatever the data."""

import numpy as np
import pytest

from papers import approximation_after_training, approximation_splits
from papers.approximation_after_training import check_claims, main
from papers.approximation_splits import (
    DESCENTS,
    FULL_MODEL,
    METHODS,
    RANDOM,
    SETS,
    Set,
    distances,
    errors,
    measure,
    measure_descents,
    standardised,
)
from papers.experiment import Kept


def load():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(150, 2)), rng.integers(0, 2, size=150)])
    return X, 3 + np.sin(X[:, 0]) * X[:, 1] + X[:, 2] + 0.1 * rng.normal(size=150)


TINY = {
    "abalone": Set(load, 0.3, 0.1, 100, 2, (4, 12)),
    "boston": Set(load, 0.3, 0.1, 120, 1, (4, 12)),
    "not centred": Set(load, 0.3, 0.1, 100, 1, (4,), centred=False, methods=("document, no descent", "document")),
}


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(approximation_after_training, "SETS", TINY)
    monkeypatch.setattr(approximation_splits, "STEPS", (2, 20))
    monkeypatch.setattr(approximation_after_training, "STEPS", (2, 20))
    for options in METHODS.values():
        monkeypatch.setitem(options, "max_iter", 40)
        monkeypatch.setitem(options, "search_iter", 20)


def test_report_and_figure_are_written_and_a_run_goes_on_where_it_was(tiny, tmp_path, capsys, monkeypatch):
    main(["--output", str(tmp_path)])
    text = (tmp_path / "report.md").read_text()
    assert all((tmp_path / f"figure.{ending}").exists() for ending in ("png", "svg"))
    assert all(f"\n{size}  " in text for size in (4, 12))
    assert "100 (full)" in text
    assert "20 steps" in text
    assert "hold" in text
    monkeypatch.setattr(approximation_splits, "ExactRegressor", None)  # nothing is measured again
    main(["--output", str(tmp_path)])
    assert (tmp_path / "report.md").read_text() == text
    capsys.readouterr()


def test_errors_are_those_of_the_methods(tiny):
    kept, data = Kept(None, ""), TINY["abalone"]
    for split in range(2):
        measure("abalone", data, split, kept)
    full = errors("abalone", data, FULL_MODEL, 0, kept)
    assert full.shape == (2,)
    assert np.all((full > 0) & (full < 0.3))  # of unit variance
    for method in data.methods:
        few, many = (np.mean(errors("abalone", data, method, size, kept)) for size in data.sizes)
        assert many < few
    for method in ("variable projection", "on data"):
        assert np.mean(errors("abalone", data, method, 12, kept)) < 1.3 * np.mean(full)
    plain, moved = (errors("abalone", data, "document", 4, kept, r) for r in ("plain", "offset"))
    assert np.all(plain != moved)
    assert RANDOM in data.methods


def test_more_steps_come_closer(tiny):
    kept = Kept(None, "")
    measure_descents(TINY["abalone"], 0, kept)
    for optimiser in DESCENTS:
        assert distances(0, optimiser, 20, kept) < distances(0, optimiser, 2, kept) < 1


def test_claims_are_judged_by_the_numbers():
    data = {"abalone": Set(load, 0.3, 0.1, 100, 1, (5, 25))}
    numbers = {
        FULL_MODEL: {"0 offset": 1.0},
        "document, no descent": {"5 offset": 1.5, "5 plain": 1.6, "25 offset": 1.3, "25 plain": 1.2},
        "document": {"5 offset": 1.4, "5 plain": 1.6, "25 offset": 1.01, "25 plain": 1.02},
        "variable projection": {"5 offset": 1.1, "25 offset": 1.004},
        "on data": {"5 offset": 1.1, "25 offset": 1.006},
    }
    kept = Kept(None, "")
    for method, found in numbers.items():
        kept.get(f"abalone, split 0, {method}", lambda found=found: found)
    holds = {claim.claim.removeprefix("abalone: "): claim.holds for claim in check_claims(data, kept)}
    assert list(holds.values()) == [True, False, True, False, True, True, False]


def test_the_sets_are_those_of_the_document():
    abalone, boston = SETS["abalone"], SETS["boston"]
    assert (abalone.n_train, abalone.splits, boston.n_train, boston.splits) == (3000, 10, 481, 100)
    assert abalone.kernel([[0.0]], [[2.0]])[0, 0] == pytest.approx(np.exp(-(10**-1.5) * 4))
    rows, targets = standardised(TINY["abalone"])
    np.testing.assert_allclose(rows[:, :2].std(axis=0), 1)
    np.testing.assert_allclose(rows[:, :2].mean(axis=0), 0, atol=1e-12)
    assert set(rows[:, 2]) == {0.0, 1.0}
    assert (targets.mean(), targets.std()) == pytest.approx((0, 1))
    assert standardised(TINY["not centred"])[1].mean() > 1
