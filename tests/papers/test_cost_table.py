import numpy as np
import pytest

from papers import cost_table as paper
from papers.experiment import Kept

SMALL = paper.Sizes(n_rows=(60, 120), n_basis=20, seconds=60.0)


@pytest.fixture(scope="module")
def results():
    return paper.run(SMALL)


def test_every_system_is_timed_and_judged_in_both_forms(results):
    assert set(results) == set(paper.SYSTEMS)
    for methods in results.values():
        assert len(methods["vanilla"].n_rows) == 2
        for measured in methods.values():
            assert not measured.gave_up
            if not measured.is_missing:
                np.testing.assert_array_equal(measured.n_rows, SMALL.n_rows)
                assert np.all(measured.seconds > 0)
                assert np.all(np.isfinite(measured.quality))


def test_both_forms_of_ridge_are_good(results):
    for measured in results["ridge"].values():
        assert measured.quality[-1] < 1.0  # the spread of the targets


def test_an_exponent_is_the_slope_over_the_last_decade():
    n = np.array([10.0, 100.0, 1000.0, 10_000.0])
    assert paper.exponent(n, np.where(n < 1000, 1.0, 1e-6 * n**2)) == pytest.approx(2.0)
    assert np.isnan(paper.exponent(n[:1], n[:1]))


def test_claims_are_computed_from_the_results_and_can_fail():
    def made(power):
        n = np.array([1000.0, 10_000.0])
        return {"ridge": {"Nyström": paper.Measured(n, n**power, n, "")}}

    assert [claim.holds for power in (1.1, 2.0) for claim in paper.check_claims(made(power))] == [True, False]


def test_vanilla_gives_up_by_memory_and_by_time_and_says_so(monkeypatch):
    monkeypatch.setattr(paper, "_memory", lambda: 1e-4)  # of 60 rows the matrices fit, of 120 they do not
    given_up = paper.run(SMALL)["ridge"]
    assert given_up["vanilla"].gave_up == "n = 120 would need 0 GB"
    assert len(given_up["vanilla"].n_rows) == 1
    assert len(given_up["Nyström"].n_rows) == 2
    monkeypatch.setattr(paper, "_memory", lambda: 1e9)
    slow = paper.run(paper.Sizes(n_rows=(60, 120), n_basis=20, seconds=0.0))
    assert "would take" in slow["SVM"]["vanilla"].gave_up
    assert "would take" in paper.report(slow, SMALL)


def test_what_is_kept_is_not_measured_again(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    first = paper.run(SMALL, kept=Kept(path, repr(SMALL)))
    monkeypatch.setattr(paper, "_measure", lambda *_: pytest.fail("measured again"))
    again = paper.run(SMALL, kept=Kept(path, repr(SMALL)))
    np.testing.assert_array_equal(first["SVM"]["vanilla"].seconds, again["SVM"]["vanilla"].seconds)


def test_the_command_writes_the_plot_and_the_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(paper, "QUICK", SMALL)
    paper.main(["--quick", "--output", str(tmp_path / "out")])
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"report.md", "results.json", "time.png", "time.svg"}
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "vanilla / Nyström" in report
    assert report in capsys.readouterr().out
