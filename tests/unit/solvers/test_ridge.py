"""Ridge regression from sums against the same solved densely from the rows."""

from dataclasses import replace

import numpy as np
import pytest

from mercer.solvers.ridge import RidgeProblem


class Dense:
    """Features, targets and weights, and what follows from them directly."""

    def __init__(self, *, n=40, r=6, p=2, intercept=False, weighted=False, rank=None, seed=0):
        rng = np.random.default_rng(seed)
        self.v = rng.normal(size=(n, rank or r)) @ rng.normal(size=(rank or r, r)) + 1.0
        if rank:
            self.v -= 1.0
        self.y = rng.normal(size=(n, p)) + self.v[:, :1] + 3.0
        self.w = rng.uniform(0.2, 2.0, size=n) if weighted else np.ones(n)
        self.intercept = intercept

    def problem(self):
        augmented = np.column_stack([self.v, self.y, np.ones(len(self.v))])
        sums = augmented.T @ (self.w[:, np.newaxis] * augmented)
        r = self.v.shape[1]
        return RidgeProblem.from_sums(
            n_targets=float(np.sum(self.w)),
            gram=sums[:r, :r],
            cross=sums[:r, r:],
            moments=sums[r:, r:],
            intercept=self.intercept,
        )

    def design(self):
        """[v, 1] and the penalty's diagonal: none on the constant."""
        r = self.v.shape[1]
        if not self.intercept:
            return self.v, np.ones(r)
        return np.column_stack([self.v, np.ones(len(self.v))]), np.append(np.ones(r), 0.0)

    def smoother(self, noise):
        """S with ŷ = S y."""
        design, penalty = self.design()
        weighted = design.T * self.w
        return design @ np.linalg.solve(weighted @ design + noise * np.diag(penalty), weighted)

    def coefficients(self, noise):
        design, penalty = self.design()
        weighted = design.T * self.w
        return np.linalg.solve(weighted @ design + noise * np.diag(penalty), weighted @ self.y)

    def share(self, noise, v):
        """λ [v, 1]ᵀ (DᵀWD + λP)⁻¹ [v, 1]: what the data leave unknown of the weights."""
        design, penalty = self.design()
        point = np.column_stack([v, np.ones(len(v))]) if self.intercept else v
        inverse = np.linalg.inv((design.T * self.w) @ design + noise * np.diag(penalty))
        return noise * np.einsum("ij,jk,ik->i", point, inverse, point)


CASES = [{"intercept": intercept, "weighted": weighted} for intercept in (False, True) for weighted in (False, True)]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(k for k in case if case[k]) or "plain")
NOISES = [1e-6, 0.1, 3.0, 1e4]
every_noise = pytest.mark.parametrize("noise", NOISES)
both_ways = pytest.mark.parametrize("way", [lambda p: p, lambda p: p.path()], ids=["cholesky", "path"])


@every_case
@every_noise
@both_ways
def test_solution(case, noise, way):
    dense = Dense(**case)
    solution = way(dense.problem()).solve(noise)
    expected = dense.coefficients(noise)
    np.testing.assert_allclose(solution.weights, expected[:6], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(solution.intercept, expected[6] if dense.intercept else 0.0, rtol=1e-8, atol=1e-9)
    assert solution.noise == noise


@every_case
@every_noise
@both_ways
def test_variance(case, noise, way):
    dense = Dense(**case)
    solution = way(dense.problem()).solve(noise)
    new = np.random.default_rng(1).normal(size=(5, 6))
    share = np.sum(((new - solution.mean) @ solution.root.T) ** 2, axis=1) + solution.constant
    np.testing.assert_allclose(share, dense.share(noise, new), rtol=1e-7)


@every_case
@both_ways
def test_without_noise_it_is_least_squares_and_certain(case, way):
    dense = Dense(**case)
    solution = way(dense.problem()).solve(0.0)
    expected = dense.coefficients(0.0)
    np.testing.assert_allclose(solution.weights, expected[:6], rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(solution.root, 0.0)
    assert solution.constant == 0.0


@both_ways
@pytest.mark.parametrize("intercept", [False, True])
def test_directions_without_data_keep_their_prior(way, intercept):
    dense = Dense(r=6, rank=2, intercept=intercept)
    solution = way(dense.problem()).solve(0.0)
    centred = dense.v - intercept * np.mean(dense.v, axis=0)
    targets = dense.y - intercept * np.mean(dense.y, axis=0)
    # The shortest of all least-squares solutions, as the limit of ever smaller noise is.
    np.testing.assert_allclose(solution.weights, np.linalg.pinv(centred, rcond=1e-10) @ targets, rtol=1e-6, atol=1e-8)
    _, _, rows = np.linalg.svd(centred)
    seen, unseen = rows[:2], rows[2:]
    np.testing.assert_allclose(np.linalg.norm(solution.root @ seen.T, axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(solution.root @ unseen.T, axis=0), 1.0, rtol=1e-6)


def test_a_noise_below_rounding_is_as_good_as_none():
    dense = Dense(r=6, rank=2)
    tiny, none = dense.problem().solve(1e-30), dense.problem().solve(0.0)
    np.testing.assert_allclose(tiny.weights, none.weights, rtol=1e-10)


@every_case
def test_the_path_equals_the_single_solves(case):
    problem = Dense(**case).problem()
    path = problem.path()
    for noise in np.geomspace(1e-8, 1e6, 15):
        one, other = problem.solve(noise), path.solve(noise)
        np.testing.assert_allclose(other.weights, one.weights, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(other.intercept, one.intercept, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(other.root.T @ other.root, one.root.T @ one.root, rtol=1e-8, atol=1e-10)


@every_case
@every_noise
def test_degrees_of_freedom_are_the_trace_of_the_smoother(case, noise):
    dense = Dense(**case)
    freedom = dense.problem().path().degrees_of_freedom(noise)
    assert freedom == pytest.approx(np.trace(dense.smoother(noise)), rel=1e-9)


@every_case
@every_noise
def test_residual_share(case, noise):
    dense = Dense(**case)
    residuals = dense.y - dense.smoother(noise) @ dense.y
    expected = np.sum(dense.w[:, np.newaxis] * residuals**2, axis=0)
    problem = dense.problem()
    np.testing.assert_allclose(problem.path().residual_share(noise) * problem.squares, expected, rtol=1e-8)


@every_case
@every_noise
def test_generalised_cross_validation(case, noise):
    dense = Dense(**case)
    smoother, n = dense.smoother(noise), np.sum(dense.w)
    residuals = dense.y - smoother @ dense.y
    expected = np.sum(dense.w[:, np.newaxis] * residuals**2) / n / (1 - np.trace(smoother) / n) ** 2
    assert dense.problem().path().gcv(noise) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("intercept", [False, True])
def test_as_many_degrees_of_freedom_as_rows_cannot_be_cross_validated(intercept):
    path = Dense(n=5, r=8, intercept=intercept).problem().path()
    assert path.gcv(0.0) == np.inf
    assert np.isfinite(path.gcv(1.0))


@every_case
def test_the_best_noise_is_better_than_a_fine_grid(case):
    path = Dense(**case).problem().path()
    best = path.best_noise()
    grid = np.geomspace(1e-12, 1e3, 2000) * np.max(path.eigenvalues)
    # Each output counts relative to its variance; scores within a millionth are equal, and the largest noise wins.
    assert path._score(best) <= min(path._score(noise) for noise in grid) * (1 + 2e-6)


def test_of_equal_scores_the_largest_noise_wins():
    problem = Dense().problem()
    path = replace(problem, cross=0 * problem.cross).path()  # nothing to learn: the more noise, the better
    assert path.best_noise() == pytest.approx(1e3 * np.max(path.eigenvalues))


@pytest.mark.parametrize(
    ("n", "r", "p", "intercept"),
    [(1, 3, 1, False), (1, 3, 1, True), (2, 3, 1, True), (3, 8, 2, True), (5, 1, 1, False)],
)
def test_the_best_noise_of_few_rows_is_positive_and_finite(n, r, p, intercept):
    best = Dense(n=n, r=r, p=p, intercept=intercept).problem().path().best_noise()
    assert np.isfinite(best)
    assert best > 0


@pytest.mark.parametrize("targets", [0.0, 5.0])
def test_the_best_noise_of_constant_targets(targets):
    dense = Dense(intercept=True)
    dense.y[...] = targets
    path = dense.problem().path()
    best = path.best_noise()
    assert np.isfinite(best)
    assert best > 0
    np.testing.assert_allclose(path.solve(best).weights, 0.0, atol=1e-6)


def test_no_rows_give_the_prior():
    r, p = 4, 2
    for intercept in (False, True):
        problem = RidgeProblem.from_sums(
            n_targets=1.0,
            gram=np.zeros((r, r)),
            cross=np.zeros((r, p + 1)),
            moments=np.zeros((p + 1, p + 1)),
            intercept=intercept,
        )
        for noise in (0.0, 0.5):
            solution = problem.solve(noise)
            np.testing.assert_array_equal(solution.weights, 0.0)
            np.testing.assert_array_equal(solution.intercept, 0.0)
            np.testing.assert_allclose(solution.root.T @ solution.root, np.eye(r), atol=1e-14)


def test_the_sums_are_not_changed():
    dense = Dense(intercept=True)
    augmented = np.column_stack([dense.v, dense.y, np.ones(40)])
    sums = augmented.T @ augmented
    before = sums.copy()
    problem = RidgeProblem.from_sums(
        n_targets=1.0, gram=sums[:6, :6], cross=sums[:6, 6:], moments=sums[6:, 6:], intercept=True
    )
    problem.solve(0.1)
    problem.path().best_noise()
    np.testing.assert_array_equal(sums, before)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_an_intercept_takes_up_a_common_offset_of_the_targets(offset):
    dense, moved = Dense(intercept=True), Dense(intercept=True)
    moved.y += offset
    one, other = dense.problem().solve(0.1), moved.problem().solve(0.1)
    # Centring cancels offset²·n against itself; the weights keep the digits that are left.
    np.testing.assert_allclose(other.weights, one.weights, rtol=1e-7)
    np.testing.assert_allclose(other.intercept, one.intercept + offset, rtol=1e-9)
