"""The comparison of strategies, on a small scale: what must hold whatever the data."""

import numpy as np
import pytest

from papers import choosing_landmarks
from papers.choosing_landmarks import DATA, QUICK, Sizes, Source, main, report, run
from papers.landmark_results import Curves, Measured, Results

TINY = Sizes(points=(5, 20), seeds=2, largest=150)


def blob(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=400)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(choosing_landmarks, "DATA", {"blob": Source(blob, 300, 100)})
    return run("blob", TINY)


def test_more_points_leave_less_and_every_strategy_is_there(small):
    assert set(small.errors) == set(choosing_landmarks.strategies(0.1))
    for name, shares in small.unexplained.items():
        assert shares.shape == (2, 2)
        assert np.all(shares[:, 1] < shares[:, 0]), name
        assert np.all(small.errors[name] < 1.2)
    assert all(seconds.shape == (2,) for seconds in small.seconds.values())
    assert small.noise > 0


def test_greedy_pivots_leave_less_of_the_trace_than_uniform_draws(small):
    assert np.all(small.unexplained["Cholesky, greedy"][:, 1] < small.unexplained["uniform"][:, 1])


def curves(found=10, **errors):
    table = {name: np.array(values)[:, np.newaxis] for name, values in errors.items()}
    seconds = {name: np.ones(len(values)) for name, values in errors.items()}
    numbers = {name: np.full((len(values), 1), found) for name, values in errors.items()}
    return Curves("made up", (10,), 0.1, table, table, numbers, seconds)


def test_what_counts_as_better_than_uniform():
    draws = [1.0, 1.1, 0.9, 1.05, 0.95]
    clear, slight, noisy = ([x - 0.2 for x in draws], [x - 0.005 for x in draws], [0.5, 1.4, 0.9, 0.6, 1.0])
    found = curves(uniform=draws, clear=clear, slight=slight, noisy=noisy, worse=[2.0] * 5).better_than_uniform(0)
    assert found == {"clear": pytest.approx(0.2)}
    assert not curves(uniform=[1.0], clear=[0.1]).better_than_uniform(0)  # one draw shows nothing


def test_the_report_names_what_is_better_and_how_many_points_were_found():
    text = report([curves(uniform=[1.0, 1.1], clear=[0.5, 0.6])], TINY)
    assert "clear 48%" in text
    assert "uniform draws are enough" in text
    assert "[7]" not in text
    assert "0.5500 ± 0.0500 [7]" in report([curves(found=7, uniform=[1.0, 1.1], clear=[0.5, 0.6])], TINY)


def test_a_run_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(choosing_landmarks, "DATA", {"blob": Source(blob, 300, 100)})
    path = tmp_path / "results.json"
    kept = Results(path, TINY)
    first = run("blob", TINY, kept=kept)
    again = Results(path, TINY)
    assert again.has("blob", "uniform", 1)
    assert not again.has("blob", "uniform", 2)
    monkeypatch.setattr(choosing_landmarks, "_measure", None)  # nothing is measured again
    second = run("blob", TINY, kept=again)
    for name in first.errors:
        np.testing.assert_array_equal(first.errors[name], second.errors[name])
    with pytest.raises(ValueError, match="another size of the experiment"):
        Results(path, QUICK)


def test_results_are_on_disk_at_once(tmp_path):
    kept = Results(tmp_path / "results.json", TINY)
    kept.set_noise("a", 0.5)
    kept.add("a", "uniform", 0, Measured([0.1], [0.2], [5], 1.0))
    again = Results(tmp_path / "results.json", TINY)
    assert again.noise("a") == 0.5
    assert again.is_complete("a", ["uniform"], 1)
    assert not again.is_complete("a", ["uniform", "k-means"], 1)


def test_one_command_writes_report_plots_and_results(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(choosing_landmarks, "QUICK", TINY)
    main(["--quick", "--data", "uniform", "--output", str(tmp_path)])
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"report.md", "results.json", "uniform.png", "uniform.svg"}
    before = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "## uniform" in before
    main(["--quick", "--data", "--output", str(tmp_path)])  # nothing is run again
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == before
    assert "uniform, seed 1, sparse greedy" in capsys.readouterr().out


def test_five_data_sets_are_compared():
    assert set(DATA) == {"abalone", "boston", "forest", "clusters", "uniform"}
    assert QUICK.seeds >= 2
