"""The experiment with NORMA's regret, on a small scale: what must hold whatever the rows."""

import numpy as np
import pytest

from papers import norma_regret
from papers.norma_regret import DATA, SCHEDULES, Sizes, claims, main, measure


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_regret_stays_under_the_bound(name, schedule):
    for budget in (120, 25):
        found = measure(name, schedule, 120, budget)
        assert np.all(found.regret <= found.bound)
        assert schedule != "inverse_sqrt" or (found.b > 0) == (budget == 25)


def test_an_adversary_makes_every_row_wrong():
    found = measure("adversary", "inverse_sqrt", 60, 60)
    losses = np.diff(found.risk, prepend=0.0)
    assert np.all(losses >= 1.0 - 1e-9)  # of the hinge


def test_report_and_picture_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(norma_regret, "FULL", Sizes(rows=80, budget=20))
    main(["--output", str(tmp_path)])
    text = (tmp_path / "report.md").read_text()
    assert all(name in text for name in (*DATA, *SCHEDULES))
    assert all((tmp_path / f"regret.{ending}").exists() for ending in ("png", "svg"))
    results = {("waves", "inverse_sqrt", 80): measure("waves", "inverse_sqrt", 80, 80)}
    assert all(claim.holds for claim in claims(results)[:2])
