"""Methods of regression: mercer without settings, and peers, which are given standardised inputs and targets."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeCV
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVR

from benchmarks.tabular.scores import COVERAGE, Clock, Predicted, conformal_width
from benchmarks.tabular.sets import SMALL, Split
from mercer import AutoRegressor
from mercer._typing import FloatArray

ALPHAS = np.logspace(-6, 3, 10)
LENGTHS = (0.25, 0.5, 1.0, 2.0)  # length scales that are tried, in units of the median distance
N_COMPONENTS = 1000
GRID_ROWS = 1000  # rows on which parameters are chosen
SVM_ROWS = 5000  # at most, for support vector machines
GP_ROWS = 2000  # at most, for the Gaussian process
GP_PART = 500  # rows on which its kernel is found
GP_COLUMNS = 50  # with more, it has one length scale for all: 500 rows do not determine that many
GP_ITERATIONS = 40
STRONG: dict[str, Any] = {"max_iter": 1000, "max_leaf_nodes": 63, "early_stopping": True}


def mercer(split: Split) -> Predicted:
    """AutoRegressor with its defaults."""
    clock = Clock()
    model = AutoRegressor(random_state=0).fit(split.X, split.y)
    mean, std = model.predict(split.X_test, return_std=True)
    took = clock.read()
    lower, upper = model.predict_interval(split.X_test, coverage=COVERAGE)
    observed = np.sqrt(std**2 + model.noise_ * model.scale_**2)
    return Predicted(mean, observed, lower, upper, took)


def gaussian_process(split: Split) -> Predicted:
    """scikit-learn's, with a length scale per column, which are found on a part of the rows."""
    clock = Clock()
    n_columns = split.X.shape[1]
    part, rows = split.first(GP_PART), split.first(GP_ROWS)
    lengths = np.full(n_columns if n_columns <= GP_COLUMNS else 1, np.sqrt(n_columns))
    kernel = ConstantKernel() * Matern(lengths, (1e-2, 1e4), nu=1.5) + WhiteKernel(0.1, (1e-8, 10.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length scale at its bound: the column is not used
        kernel = GaussianProcessRegressor(kernel, optimizer=_few_steps).fit(part.X, part.y).kernel_
        model = GaussianProcessRegressor(kernel, optimizer=None).fit(rows.X, rows.y)
    mean, std = model.predict(split.X_test, return_std=True)
    took = clock.read()
    half = norm.ppf(0.5 + COVERAGE / 2) * std
    return Predicted(mean, std, mean - half, mean + half, took)


def _few_steps(function: Any, start: FloatArray, bounds: FloatArray) -> tuple[FloatArray, float]:
    found = minimize(
        function, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": GP_ITERATIONS}
    )  # fmt: skip
    return found.x, found.fun


Choose = Callable[[Split], Any]


def held_out(choose: Choose, most: int | None = None) -> Callable[[Split], Predicted]:
    """Let a model without a spread of its own take that of its residuals on rows held out.

    The mean is that of the model of all rows (or of as many as it can take). The same model is then fitted without the
    rows held out, which is not counted in its time.
    """

    def run(split: Split) -> Predicted:
        clock = Clock()
        used = split if most is None else split.first(most)
        model = choose(used).fit(used.X, used.y)
        mean = model.predict(split.X_test)
        took = clock.read()
        residuals = _residuals(model, used)
        half, std = conformal_width(residuals), np.sqrt(np.mean(residuals**2))
        return Predicted(mean, np.full(len(mean), std), mean - half, mean + half, took)

    return run


def _residuals(model: Any, split: Split) -> FloatArray:
    """Of five folds of few rows, or of a tenth of many."""
    few = len(split.y) < SMALL
    parts = KFold(5, shuffle=True, random_state=0) if few else ShuffleSplit(1, test_size=0.1, random_state=0)
    return np.concatenate(
        [
            split.y[out] - clone(model).fit(split.X[others], split.y[others]).predict(split.X[out])
            for others, out in parts.split(split.X)
        ]
    )


def _nystroem(split: Split) -> Any:
    """Choose the length scale by the leave-one-out error of RidgeCV."""
    part = split.first(GRID_ROWS)
    models = [nystroem_features(part, factor, len(part.y) // 2) for factor in LENGTHS]
    errors = [-make_pipeline(each, RidgeCV(ALPHAS)).fit(part.X, part.y)[-1].best_score_ for each in models]
    features = nystroem_features(part, LENGTHS[int(np.argmin(errors))], most_components(split))
    return make_pipeline(features, RidgeCV(ALPHAS))


def nystroem_features(part: Split, factor: float, n_components: int) -> Nystroem:
    """Features of a Gaussian kernel whose length scale is a multiple of the median distance."""
    distances = pairwise_distances(part.X[:GRID_ROWS])
    length = factor * np.median(distances[np.triu_indices(len(distances), 1)])
    return Nystroem(gamma=0.5 / length**2, n_components=n_components, random_state=0)


def most_components(split: Split) -> int:
    """As many as four fifths of the rows allow, or 1000."""
    return min(N_COMPONENTS, 4 * len(split.y) // 5)


def _svr(split: Split) -> Any:
    part = split.first(GRID_ROWS)
    d = split.X.shape[1]
    grid = {"C": [1.0, 10.0, 100.0], "gamma": [0.2 / d, 1.0 / d, 5.0 / d]}
    thirds = KFold(3, shuffle=True, random_state=0)  # some sets are in an order
    search = GridSearchCV(SVR(epsilon=0.03), grid, cv=thirds, scoring="neg_mean_squared_error", refit=False)
    return SVR(epsilon=0.03, **search.fit(part.X, part.y).best_params_)


METHODS: dict[str, Callable[[Split], Predicted]] = {
    "mercer": mercer,
    "boosting": held_out(lambda _: HistGradientBoostingRegressor(random_state=0)),
    "boosting-1000": held_out(lambda _: HistGradientBoostingRegressor(**STRONG, random_state=0)),
    "gp": gaussian_process,
    "nystroem": held_out(_nystroem),
    "svm": held_out(_svr, SVM_ROWS),
    "linear": held_out(lambda _: RidgeCV(ALPHAS)),
}
