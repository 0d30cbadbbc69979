"""Quantiles of standardised residuals, of rows that count as their weights say."""

import numpy as np
import pytest

from mercer.model import Calibration


def calibration(residuals, weights):
    residuals = np.asarray(residuals, dtype=float)[:, np.newaxis]
    return Calibration(np.zeros_like(residuals), residuals, np.ones(len(residuals)), np.asarray(weights, dtype=float))


def test_the_quantile_is_an_order_statistic():
    width, conformal = calibration(np.arange(1, 20), np.ones(19)).quantile(np.ones(1), 0.95)
    assert conformal
    assert width.tolist() == [19.0]


def test_counts_are_rows():
    one = calibration([1, 2, 3], [10, 20, 30]).quantile(np.ones(1), 0.9)
    other = calibration(np.repeat([1, 2, 3], [10, 20, 30]), np.ones(60)).quantile(np.ones(1), 0.9)
    assert one == other


@pytest.mark.parametrize("decades", [6, 12])
def test_rows_of_negligible_weight_do_not_count(decades):
    # As if there were three rows: too few for an order statistic.
    weights = np.concatenate([np.ones(3), np.full(97, 10.0**-decades)])
    _, conformal = calibration(np.arange(100), weights).quantile(np.ones(1), 0.95)
    assert not conformal
