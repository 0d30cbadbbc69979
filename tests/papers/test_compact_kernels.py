"""The experiments with compact kernels, on a small scale: what must hold whatever the data, and what the data show."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mercer.datasets import load_boston
from mercer.datasets.public import find_file
from papers import compact_boston, compact_kernels, compact_laser, compact_sinc
from papers.compact_kernels import Sizes, check_claims, main, run
from papers.compact_laser import LaserSizes, Series, askey
from papers.compact_sinc import SIGMA, SincSizes

TINY = Sizes(SincSizes(0.5, 4, 1, 3), 1, LaserSizes(3, (3, 50), (1, 2, 51), (8.0,)))

# Some of the kernels of the paper leave rows without neighbours that matter: that is what it shows.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.StarvedWarning")


def series():
    """Two waves whose periods have no common multiple, in place of the laser."""
    t = np.arange(700.0)
    values = 50 + 40 * np.sin(0.8 * t) * (1 + 0.5 * np.sin(0.11 * t))
    return values[:300], values[300:]


def homes():
    X = np.random.default_rng(0).normal(size=(450, 13))
    X[:, 3] = X[:, 3] > 1
    return 3 + 2 * X, np.sin(X[:, 0]) + X[:, 1]


@pytest.fixture(scope="module")
def results():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact_laser, "load_laser", series)
        patch.setattr(compact_boston, "load_boston", homes)
        return run(TINY)


def needs(name):
    return pytest.mark.skipif(find_file(name) is None, reason=f"{name} is not on this machine")


def test_the_command_writes_the_report_and_its_plots(results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compact_kernels, "run", lambda _sizes, verbose: results)
    main(["--quick", "--output", str(tmp_path / "out")])
    names = {path.name for path in (tmp_path / "out").iterdir()}
    figures = {"sinc.svg", "condition.svg", "laser.svg", "cutoff.svg", "exponent.svg"}
    assert names == {"report.md", *figures}
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert text in capsys.readouterr().out
    assert all(f"({figure})" in text for figure in figures)
    assert all(str(seconds) in text for seconds in compact_sinc.PRINTED_SECONDS.values())
    assert all(value in text for value in ("0.0058", "0.013", "0.12", "0.11", "0.0845", "0.37", "0.84"))


def test_a_run_is_the_same_every_time(results, monkeypatch):
    monkeypatch.setattr(compact_laser, "load_laser", series)
    for key, spread in compact_sinc.sinc(TINY.sinc).spreads.items():
        np.testing.assert_equal(vars(spread), vars(results.sinc.spreads[key]))
    again = Series.load(TINY.laser.starts).outcome(askey(*compact_laser.SHALLOW))
    np.testing.assert_equal(again.path, results.laser.shallow.path)
    split = compact_boston._split(*homes(), 1.5, 13, 0)
    np.testing.assert_equal(split, results.boston.numbers[1.5, 13][0])


def test_bias_and_variance_are_those_of_separate_fits():
    sizes = SincSizes(0.5, 3, 1, 3)
    found = compact_sinc.sinc(sizes)
    x = found.x
    assert len(x) == 81
    y = np.sinc(x / np.pi)[:, np.newaxis] + 0.1 * np.random.default_rng(0).normal(size=(81, 3))
    # The LS-SVM with intercept, from its bordered system
    r = np.abs(x[:, np.newaxis] - x)
    kernel = np.maximum(0, 1 - r / (3 * SIGMA)) * np.exp(-((r / SIGMA) ** 2))
    system = np.block([[np.zeros((1, 1)), np.ones((1, 81))], [np.ones((81, 1)), kernel + np.eye(81) / 1.5]])
    solution = np.linalg.solve(system, np.vstack([np.zeros((1, 3)), y]))
    estimates = kernel @ solution[1:] + solution[0]
    spread = found.spreads["CS-RBF", "targets"]
    np.testing.assert_allclose(spread.one, estimates[:, 0], atol=1e-8)
    np.testing.assert_allclose(spread.bias, estimates.mean(axis=1) - np.sinc(x / np.pi), atol=1e-8)
    np.testing.assert_allclose(spread.variance, estimates.var(axis=1, ddof=1), atol=1e-8)


def test_the_document_counts_1334_inputs_and_its_non_zeros_lie_between_our_bounds():
    assert len(compact_sinc.inputs(0.03)) == 1334
    low, high = compact_sinc._nonzero_bounds(0.03)
    distances = np.abs(np.subtract.outer(np.arange(1334), np.arange(1334)))
    assert (low, high) == (np.sum(distances < 370), np.sum(distances <= 370))
    assert low <= compact_sinc.PRINTED_NONZEROS <= high


def test_condition_numbers_are_those_of_the_matrix(results):
    found = results.conditions
    X = compact_sinc.inputs(TINY.sinc.step)
    for name, make in (("RBF", compact_sinc.gaussian), ("CS-RBF", compact_sinc.compact)):
        matrix = make(found.sigmas[1])(X) + np.eye(len(X)) / found.gammas[0]
        assert found.logarithms[name][0, 1] == pytest.approx(math.log10(np.linalg.cond(matrix)), rel=1e-6)


def test_all_solvers_are_timed(results):
    assert {(t.method, t.matrix) for t in results.timings} >= set(compact_sinc.PRINTED_SECONDS)
    assert all(t.clock > 0 and t.size > 0 for t in results.timings)
    assert all(t.iterations > 1 for t in results.timings if t.method == "CG")


def test_binary_inputs_are_left_as_they_are_and_units_do_not_matter():
    X, y = homes()
    numbers = compact_boston._split(X, y, 1.5, 13, 0)
    others = X * np.where(np.arange(13) == 3, 1.0, 1000.0) - 5.0 * (np.arange(13) != 3)
    np.testing.assert_allclose(compact_boston._split(others, y, 1.5, 13, 0), numbers, rtol=1e-9)
    far = X * np.where(np.arange(13) == 3, 10.0, 1.0)  # rows that differ in the binary input are no neighbours now
    assert compact_boston._split(far, y, 1.5, 13, 0)[2] < 0.9 * numbers[2]


def test_refused_kernels_are_told_with_their_eigenvalue(results):
    refused = {key: outcome for key, outcome in results.laser.plain.items() if outcome.refusal}
    assert (1, 8.0) in refused
    outcome = refused[1, 8.0]
    assert outcome.least < 0
    assert math.isnan(outcome.error)
    text = compact_laser.exponent_table(results.laser)
    assert f"refused         -                 {100 * outcome.zeros:.1f}" in text
    assert outcome.refusal in compact_laser.refusals(results.laser)


def test_iterated_predictions_feed_on_themselves():
    class Last:
        """Predicts the last value plus one."""

        def predict(self, rows):
            return rows[:, -1] + 1

    windows = np.arange(100.0).reshape(2, 50)
    found = Series(np.empty((0, 50)), np.empty(0), windows, np.empty((2, 100))).iterate(Last())
    np.testing.assert_array_equal(found, windows[:, -1:] + np.arange(1, 101))


@pytest.mark.parametrize("exponent", [1, 2, 3, 26])
def test_wendland_of_no_smoothness_is_the_plain_power(exponent):
    values = askey(exponent, 8.0)([[0.0]], [[0.0], [2.0], [7.0], [9.0]])
    np.testing.assert_allclose(values[0], [1, 0.75**exponent, 0.125**exponent, 0], rtol=1e-12)


def test_claims_are_computed_from_the_results_and_can_fail(results):
    def holding(laser):
        return {claim.claim: claim.holds for claim in check_claims(replace(results, laser=laser))}

    def made(error, zeros):
        return replace(results.laser.rbf, error=error, zeros=zeros)

    laser = replace(results.laser, mean_error=1.0, rbf=made(0.05, 0.0))
    keys = list(results.laser.by_cutoff)
    fails = replace(
        laser,
        by_cutoff={keys[0]: made(1.0, 0.3), keys[1]: made(0.05, 0.0)},
        by_bandwidth={keys[0]: made(1.0, 0.3), keys[1]: made(0.05, 0.0)},
        plain=laser.plain | {compact_laser.SHALLOW: made(1.0, 0.7)},
    )
    works = replace(
        laser,
        by_cutoff={keys[0]: made(0.06, 0.3), keys[1]: made(0.5, 0.0)},
        by_bandwidth={keys[0]: made(0.06, 0.3), keys[1]: made(0.05, 0.0)},
        plain=laser.plain | {compact_laser.SHALLOW: made(0.06, 0.7)},
    )
    before, after = holding(fails), holding(works)
    of_the_laser = [c.claim for c in compact_laser.claims(fails)]
    assert all(before[claim] for claim in of_the_laser)
    assert [after[claim] for claim in of_the_laser] == [True, False, False, False, False, False]


@needs("santafe_a_train.csv.gz")
def test_on_the_laser_a_shallow_compact_kernel_does_what_the_steep_one_does_not():
    series = Series.load(1)
    rbf, steep, shallow = (
        series.outcome(kernel)
        for kernel in (compact_sinc.gaussian(4.0), compact_sinc.compact(4.0), askey(*compact_laser.SHALLOW))
    )
    assert rbf.error == pytest.approx(0.043, abs=0.001)
    assert steep.error == pytest.approx(1.41, abs=0.01)
    assert shallow.error == pytest.approx(0.064, abs=0.002)
    assert shallow.zeros > 0.65
    assert shallow.least == pytest.approx(0.038, abs=0.001)


@needs("boston_housing.csv.gz")
def test_on_boston_the_printed_training_errors_are_the_plain_gaussians():
    X, y = load_boston()
    for sigma in compact_boston.SIGMAS:
        plain, compact = (compact_boston._split(X, y, sigma, exponent, 0)[0] for exponent in (None, 13))
        printed = compact_boston.PRINTED[sigma][0]
        assert 0.5 < plain / printed < 2
        assert compact / printed < 0.2
