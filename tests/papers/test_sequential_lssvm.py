"""The experiments with the sequential LS-SVM, on a small scale: what must hold whatever the data."""

import numpy as np
import pytest

from papers import sequential_forest, sequential_lssvm, sequential_small
from papers.experiment import Kept
from papers.sequential_forest import ForestSizes
from papers.sequential_lssvm import Sizes, main

TINY = Sizes(2, 2, ForestSizes((200, 400), (5, 10), 2, (1, 0), (200,)))


@pytest.fixture
def small(monkeypatch):
    """Two little data sets in place of the real ones, which need not be there."""

    def forest(_repeat):
        X = np.random.default_rng(0).normal(size=(900, 2))
        y = np.where(X[:, 0] ** 2 + X[:, 1] ** 2 > 1, 1.0, -1.0)
        return X[:400], y[:400], X[400:], y[400:]

    monkeypatch.setattr(sequential_forest, "draw", forest)
    monkeypatch.setattr(sequential_small, "SMALL", {"sinc": sequential_small.SMALL["sinc"]})
    monkeypatch.setattr(sequential_lssvm, "FULL", TINY)


def test_tables_and_plot_are_written_and_a_run_goes_on_where_it_was(small, tmp_path, capsys, monkeypatch):
    main(["--output", str(tmp_path)])
    text = (tmp_path / "report.md").read_text()
    assert "7.5e-4 ± 3.1e-4 (11.06)" in text  # printed values are beside ours
    assert all((tmp_path / f"tradeoff.{ending}").exists() for ending in ("png", "svg"))
    assert all(f"{n}{m:>11}" in text for n in (200, 400) for m in (5, 10))
    capsys.readouterr()
    for module in (sequential_forest, sequential_small):
        monkeypatch.setattr(module, "OnlineRegressor", None)  # nothing is measured again
    main(["--output", str(tmp_path)])
    assert (tmp_path / "report.md").read_text() == text


def test_tighter_tolerances_keep_more_functions_and_every_cell_has_its_repeats(small):
    kept = Kept(None, "")
    found = sequential_small.curves("sinc", 2, kept)
    for sizes, errors in found.values():
        assert np.all(np.diff(sizes) >= 0)
        assert errors[-1] < 0.01 < errors[0]
    sequential_forest.measure(TINY.forest, kept)
    known = [sequential_forest._values(TINY.forest, kept, "error", (m, 400, 10)) for m in sequential_forest.METHODS]
    assert [len(values) for values in known] == [0, 2, 2, 2]
    assert all(0 <= value < 30 for values in known for value in values)


def test_all_printed_cells_are_in_the_full_table():
    assert set(sequential_forest.PRINTED) == {
        (n, m) for n in sequential_lssvm.FULL.forest.rows for m in sequential_lssvm.FULL.forest.functions
    }
