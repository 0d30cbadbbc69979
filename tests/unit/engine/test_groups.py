"""Sums over groups of rows in one pass, against sums over each group alone."""

import numpy as np
import pytest

from mercer.engine import (
    ArrayRows,
    ArrayTable,
    Features,
    Sequence,
    Threads,
    by_group,
    grouped,
    normal_statistics,
    statistics_of_groups,
)
from mercer.kernels import Gaussian
from mercer.model import OneVsRest
from tests.processes import Processes


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return ArrayTable(ArrayRows(rng.normal(size=(3000, 2))), rng.normal(size=(3000, 2)), rng.uniform(0, 2, size=3000))


FEATURES = Features(Gaussian(), np.random.default_rng(1).normal(size=(5, 2)))


@pytest.mark.parametrize("order", ["mixed", "contiguous"])
@pytest.mark.parametrize("executor", [Threads(1), Threads(2), Sequence()], ids=["one", "two", "sequence"])
def test_sums_are_those_of_each_group(table, order, executor):
    groups = np.random.default_rng(2).integers(0, 3, size=3000)
    groups = np.sort(groups) if order == "contiguous" else groups
    found = statistics_of_groups(table.shifted(np.array([0.5, 0.0])), FEATURES, groups, 4, executor=executor)
    for group, sums in enumerate(found[:3]):
        part = table.subset(np.flatnonzero(groups == group)).shifted(np.array([0.5, 0.0]))
        expected = normal_statistics(part, FEATURES, executor=Threads(1))
        np.testing.assert_allclose(sums.sums, expected.sums, rtol=1e-11, atol=1e-11)
        assert sums.n_rows == expected.n_rows
        assert sums.weight_squares == pytest.approx(expected.weight_squares)
    assert found[3].n_rows == 0
    assert not np.any(found[3].sums)


def test_groups_travel_with_class_codes():
    labels = np.array(["a", "b", "c"] * 1000)
    coding = OneVsRest.from_labels(labels)
    table = ArrayTable(ArrayRows(np.ones((3000, 2))), coding.codes(labels), coding=coding)
    groups = np.arange(3000) % 7
    for tile in grouped(table, groups).tiles(100):
        assert sum(part.n_rows for _, part in by_group(tile)) == tile.n_rows
        for group, part in by_group(tile):
            here = np.arange(tile.first, tile.first + tile.n_rows)
            here = here[groups[here] == group]
            np.testing.assert_array_equal(part.targets, coding.columns(coding.codes(labels[here])))


def test_groups_travel_to_other_processes(table):
    groups = np.arange(3000) % 3
    expected = statistics_of_groups(table, FEATURES, groups, 3, executor=Threads(1))
    found = statistics_of_groups(table, FEATURES, groups, 3, executor=Processes())
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine.sums, theirs.sums)
