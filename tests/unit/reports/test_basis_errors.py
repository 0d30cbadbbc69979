"""The comparison of strategies before anything is fitted."""

import numpy as np
import pytest

from mercer.basis import PivotedCholesky, Uniform, nystrom_error
from mercer.kernels import Gaussian
from mercer.reports.basis_errors import basis_errors


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(400, 2))


def test_errors_are_those_of_the_bases(rows):
    strategies = {"plain": Uniform(), "greedy": PivotedCholesky("greedy")}
    found = basis_errors(rows, Gaussian(1.0), (5, 20, 60), strategies=strategies, random_state=0)
    assert found.n_basis == (5, 20, 60)
    assert list(found.errors) == ["plain", "greedy"]
    for several in found.errors.values():
        shares = [one.unexplained for one in several]
        assert shares == sorted(shares, reverse=True)
        assert [one.n_basis for one in several] == [5, 20, 60]
    assert found.errors["greedy"][2].unexplained < 0.5 * found.errors["plain"][2].unexplained
    again = basis_errors(rows, Gaussian(1.0), (5, 20, 60), strategies=strategies, random_state=0)
    assert again == found


def test_names_median_length_scales_and_targets(rows):
    y = np.sin(rows[:, 0])
    found = basis_errors(rows, "gaussian", [10], strategies=["uniform", "supervised_cholesky"], y=y, random_state=1)
    assert all(0 < several[0].unexplained < 0.5 for several in found.errors.values())
    with pytest.raises(ValueError, match="basis must be one of 'uniform'"):
        basis_errors(rows, "gaussian", [10], strategies=["nonsense"])


def test_the_table_and_the_plot(rows, tmp_path):
    found = basis_errors(rows, Gaussian(1.0), (5, 400), random_state=0)
    text = str(found)
    assert text.splitlines()[0].split()[-2:] == ["5", "400"]
    assert len(text.splitlines()) == 2 + 4
    found.plot(tmp_path / "errors.svg")
    assert (tmp_path / "errors.svg").stat().st_size > 1000


def test_a_basis_of_all_rows_leaves_nothing(rows):
    found = basis_errors(rows, Gaussian(1.0), [400], strategies=["uniform"], random_state=0)
    full = nystrom_error(rows, rows, Gaussian(1.0), random_state=0)
    assert found.errors["uniform"][0].unexplained == pytest.approx(full.unexplained, abs=1e-12)
    assert full.unexplained < 1e-12
