from dataclasses import replace

import numpy as np
import pytest

from papers import scalable_kernel_systems as paper

SMALL = paper.Sizes(n_train=300, n_base=40, n_test=30, n_widths=3)


@pytest.fixture(scope="module")
def results():
    return paper.run("waves", SMALL)


def test_all_curves_have_an_error_for_every_width_and_test_row(results):
    panels = {curve.split()[0] for curve in results.squares}
    assert panels == {"A", "B", "C", "D"}
    for curve, squares in results.squares.items():
        expected = 40 if curve[0] in "AB" else 30
        assert squares.shape == (3, expected), curve
        assert np.all(np.isfinite(squares))


def test_reduced_rank_equals_the_subset_of_representers_at_the_base_points(results):
    np.testing.assert_allclose(results.rmse("B RRA"), results.rmse("B SRM"), rtol=1e-6)
    assert results.difference < 1e-6


def test_claims_are_computed_from_the_results_and_can_fail(results):
    def made(factor, difference):
        squares = dict(results.squares)
        for curve in results.squares:
            if "BCM" in curve or "again" in curve:
                squares[curve] = factor * squares[curve.replace("BCM", "SRM").replace("again", "SRM")]
        return paper.check_claims(replace(results, squares=squares, difference=difference))

    better, worse = made(0.01, 0.0), made(100.0, 1.0)
    changed = [a.claim for a, b in zip(better, worse, strict=True) if a.holds and not b.holds]
    assert sum("BCM beats SRM, each at its best width" in claim for claim in changed) == 2
    assert any("SRM equals RRA" in claim for claim in changed)
    assert all(not claim.holds for claim in better if "SRM is slightly better" in claim.claim)


def test_the_command_writes_plots_and_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(paper, "QUICK", SMALL)
    paper.main(["--quick", "--output", str(tmp_path / "out")])
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"report.md", *(f"{data}.{kind}" for data in paper.DATA for kind in ("png", "svg"))}
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "holds" in report
    assert report in capsys.readouterr().out
