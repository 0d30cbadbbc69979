"""Laws of kernel principal components: inner products, weights, merging, shares. Components of equal variance turn.

So what is compared are inner products of components, which do not depend on signs and turns.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mercer import NystromFeatures, NystromPCA
from tests.strategies import booleans, kernels, seeds

TOLERANCE = 1e-8


@st.composite
def problems(draw, smallest=2):
    """Rows, some of them equal, basis points, some of them rows, and weights."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(smallest, 25)), draw(st.integers(1, 3))
    rows = rng.normal(size=(n, d))
    if draw(booleans):
        rows[n // 2 :] = rows[: n - n // 2]
    basis = np.vstack([rows[: draw(st.integers(1, n))], rng.normal(size=(draw(st.integers(0, 3)), d))])
    return rows, basis, rng.uniform(0.1, 3.0, size=n)


def grams(*transformed):
    return [each @ each.T for each in transformed]


def assert_close(actual, expected, model):
    largest = np.max(model.kernel_.diagonal(model.basis_))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE * max(largest, np.max(np.abs(expected))))


@given(problems(), kernels, booleans)
def test_inner_products_of_all_components_are_those_of_centred_features(problem, kernel, weighted):
    rows, basis, weights = problem
    weights = weights if weighted else None
    model = NystromPCA(kernel, basis=basis, n_jobs=1).fit(rows, sample_weight=weights)
    features = NystromFeatures(model.kernel_, basis=model.basis_, n_jobs=1).fit(rows).transform(rows)
    centred = features - np.average(features, axis=0, weights=weights)
    assert_close(*grams(model.transform(rows), centred), model)
    components = model.transform(rows)
    total = np.average(model.kernel_.diagonal(rows), weights=weights)
    total -= np.sum(np.average(features, axis=0, weights=weights) ** 2)
    assert_close(np.cov(components.T, aweights=weights, ddof=0), np.diag(model.explained_variance_).squeeze(), model)
    assert np.sum(model.explained_variance_ratio_) <= 1 + 1e-12
    assert_close(np.sum(model.explained_variance_), total * np.sum(model.explained_variance_ratio_), model)


@given(problems(), kernels)
def test_all_rows_as_basis_give_the_centred_kernel_matrix(problem, kernel):
    rows, _, _ = problem
    model = NystromPCA(kernel, basis=rows, n_jobs=1).fit(rows)
    gram = model.kernel_(rows)
    components = model.transform(rows)
    centre = np.eye(len(rows)) - 1 / len(rows)
    assert_close(components @ components.T, centre @ gram @ centre, model)


@given(problems(), kernels, seeds)
def test_whole_weights_are_repetitions_and_weight_zero_is_absence(problem, kernel, seed):
    rows, basis, _ = problem
    counts = np.random.default_rng(seed).integers(0, 4, size=len(rows))
    counts[0] = 2
    options = {"kernel": kernel, "basis": basis, "n_jobs": 1}
    weighted = NystromPCA(**options).fit(rows, sample_weight=counts)
    repeated = NystromPCA(**options).fit(np.repeat(rows, counts, axis=0))
    # A direction whose variance is nearly rounding may be kept by one and not by the other. Rows that were seen have
    # next to nothing along it, others may have.
    seen = rows[counts > 0]
    assert_close(*grams(weighted.transform(seen), repeated.transform(seen)), weighted)


@given(problems(), kernels, st.floats(0, 1))
def test_merged_and_added_rows_are_those_of_one_fit(problem, kernel, share):
    rows, basis, weights = problem
    cut = 1 + int(share * (len(rows) - 2))
    make = lambda: NystromPCA(kernel, basis=basis, n_jobs=1)  # noqa: E731
    whole = make().fit(rows, sample_weight=weights)
    first, second = (
        make().fit(rows[part], sample_weight=weights[part]) for part in (slice(None, cut), slice(cut, None))
    )
    added = make().fit(rows[:cut], sample_weight=weights[:cut])
    for model in (first.merge(second), added.partial_fit(rows[cut:], sample_weight=weights[cut:])):
        assert model.n_seen_ == len(rows)
        assert_close(*grams(model.transform(rows), whole.transform(rows)), whole)
