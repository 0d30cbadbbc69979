"""The comparison of gains, on a small scale."""

import numpy as np
import pytest

from papers import hebbian_gains
from papers.experiment import Kept
from papers.hebbian_gains import GRIDS, Curve, Sizes, Task, converge, main

TINY = Sizes(n_rows=40, n_components=2, passes=(1, 5, 200), data=("blob",))


@pytest.fixture
def blob(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(60, 2)) * [1.0, 0.5]
    monkeypatch.setattr(hebbian_gains, "DATA", {"blob": lambda: rows})
    return rows


def test_all_gains_come_close_to_kernel_pca_and_scaled_ones_very_close(blob):
    found = converge("blob", TINY, Kept(None, ""))
    assert found.keys() == GRIDS.keys()
    for curve in found.values():
        assert curve.excess[-1] < min(0.05, curve.excess[0])
    assert found["eigenvalue"].excess[-1] < 1e-4
    assert found["eigenvalue"].angles[-1] < found["eigenvalue"].angles[0]


def test_components_that_diverge_count_as_never(blob):
    gains = hebbian_gains.Gains(hebbian_gains.CONSTANT, 100.0, 1.0)
    assert Task.draw(blob, TINY).run(gains, (1, 2)) == dict.fromkeys(
        ("excess 1", "excess 2", "angle 1", "angle 2"), np.inf
    )


def test_convergence_is_when_the_error_stays_small():
    passes = (1, 2, 5, 10)
    for excess, expected in (
        ([1, 0.005, 1, 0.001], 10),
        ([0.001] * 4, 1),
        ([1, 1, 1, 1], np.inf),
        ([1, 1, np.nan, 0], 10),
    ):
        assert Curve(1.0, 1.0, np.array(excess), np.zeros(4)).passes_to(passes) == expected


@pytest.mark.slow
def test_the_command_writes_a_report_and_goes_on_where_it_was(blob, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(hebbian_gains, "QUICK", TINY)
    main(["--quick", "--output", str(tmp_path)])
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "eigenvalue" in text
    assert (tmp_path / "figure.svg").exists()
    monkeypatch.setattr(Task, "run", None)
    main(["--quick", "--output", str(tmp_path)])
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == text
