"""How large a model is planned: what must grow and shrink, on machines of any speed."""

import pytest

from mercer.methods import budget
from mercer.methods.budget import Budget


def test_the_model_grows_with_the_time_limit_and_shrinks_with_the_rows():
    assert Budget(60.0).exact_rows() == 6000
    assert 100 < Budget(0.1).exact_rows() < Budget(10.0).exact_rows() < 6000
    minute = Budget(60.0)
    assert minute.basis_size(10_000) >= minute.basis_size(1_000_000) >= minute.basis_size(100_000_000) == 100
    assert Budget(1.0).basis_size(1_000_000) < Budget(600.0).basis_size(1_000_000)


def test_a_part_of_the_time_is_that_much_less():
    assert Budget(60.0).basis_size(10_000, 0.1) == Budget(6.0).basis_size(10_000)
    assert Budget(60.0).exact_rows(0.04) == Budget(6.0).exact_rows(0.4)


def test_a_fast_machine_plans_what_others_do_and_a_slow_one_less(monkeypatch):
    monkeypatch.setattr(budget, "_product_rate", lambda: 1e12)
    assert Budget.on_this_machine(60.0, 2) == Budget(60.0)
    monkeypatch.setattr(budget, "_product_rate", lambda: 1e9)
    slow = Budget.on_this_machine(60.0, 2)
    assert slow.exact_rows() < Budget(60.0).exact_rows()
    assert slow.basis_size(100_000) < Budget(60.0).basis_size(100_000)


@pytest.mark.parametrize("n_rows", [10_000, 10_000_000])
def test_matrices_that_memory_does_not_hold_are_not_planned(monkeypatch, n_rows):
    monkeypatch.setattr(budget, "available_memory", lambda: 32e6)
    assert 8 * Budget(60.0).exact_rows() ** 2 <= 8e6
    assert 8 * Budget(60.0).basis_size(n_rows) ** 2 <= 8e6
