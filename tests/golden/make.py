"""Writes the golden archives of the present format: ``python tests/golden/make.py``.

Each file is a small model, as this version saves it, and ``answers.npz`` holds what the models said when they were
saved. The folder of the present format is written anew; those of earlier formats are what earlier versions wrote, and
are never touched: every later version must read them, or refuse them by name.
"""

import inspect
import warnings
from pathlib import Path

import numpy as np
from sklearn.svm import SVC, SVR, OneClassSVM

from mercer import (
    AutoClassifier,
    AutoRegressor,
    CommitteeRegressor,
    CompactClassifier,
    CompactRegressor,
    ExactClassifier,
    ExactRegressor,
    HebbianPCA,
    NormaClassifier,
    NormaNoveltyDetector,
    NormaRegressor,
    NystromClassifier,
    NystromFeatures,
    NystromPCA,
    NystromRegressor,
    NystromSVC,
    NystromSVR,
    OnlineClassifier,
    OnlineRegressor,
    PseudoInputRegressor,
    ReducedRankRegressor,
    compress,
    save,
)
from mercer.basis import KMeans, PivotedCholesky
from mercer.kernels import CompactGaussian, Gaussian, Linear, Matern, Polynomial, Wendland
from mercer.persistence import container

HERE = Path(__file__).parent


def draw(seed, n=16):
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1]


QUERIES = draw(1, 12)[0]


def models():
    """Name and model, of each class that can be saved whole."""
    X, y = draw(0)
    labels, names = np.digitize(y, [-0.5, 0.5]), np.where(y > 0, "yes", "no")
    yield "auto_regressor", AutoRegressor(random_state=0).fit(X, y)
    yield "auto_classifier", AutoClassifier(random_state=0).fit(X, labels)
    yield "exact_regressor", ExactRegressor(Gaussian(1.0), intercept=True).fit(X, y)
    yield "exact_classifier", ExactClassifier(Matern(1.0)).fit(X, labels)
    yield "nystrom_regressor", NystromRegressor(n_basis=6, intercept=True, random_state=0).fit(X, y)
    two = NystromRegressor(n_basis=6, noise="gcv", random_state=0).fit(X, np.column_stack([y, -y]))
    yield "nystrom_regressor_of_two_outputs", two
    yield "nystrom_classifier", NystromClassifier(n_basis=6, basis=KMeans(), random_state=0).fit(X, names)
    yield "nystrom_svc", NystromSVC(n_basis=6, C=10.0, loss="hinge", random_state=0).fit(X, labels)
    yield "nystrom_svr", NystromSVR(n_basis=6, C=10.0, random_state=0).fit(X, y)
    yield "nystrom_features", NystromFeatures(n_basis=6, root="cholesky", random_state=0).fit(X)
    yield "nystrom_pca", NystromPCA(n_components=3, n_basis=6, random_state=0).fit(X)
    whitened = NystromPCA(Gaussian(1.0), n_components=2, n_basis=6, whiten=True, inverse="fixed_point", random_state=0)
    yield "nystrom_pca_whitened", whitened.partial_fit(X)
    yield "reduced_rank_regressor", ReducedRankRegressor(n_basis=6, random_state=0).fit(X, y)
    yield "committee_regressor", CommitteeRegressor(n_basis=6, block_size=5, random_state=0).fit(X, y)
    pseudo = PseudoInputRegressor(Gaussian(1.0), n_basis=4, max_iter=100, random_state=0)
    yield "pseudo_input_regressor", pseudo.fit(X, y)
    yield "compact_regressor", CompactRegressor(Wendland(2.0)).fit(X, y)
    by_cg = CompactRegressor(CompactGaussian(1.0, exponent=3.0), solver="cg", preconditioner="incomplete", tol=1e-12)
    yield "compact_regressor_by_cg", by_cg.fit(X, y)
    yield "compact_classifier", CompactClassifier(Wendland(2.0)).fit(X, labels)
    yield "online_regressor", OnlineRegressor(Gaussian(1.0), max_basis=6, intercept=True, record=True).fit(X, y)
    yield "online_classifier", OnlineClassifier(Gaussian(1.0), max_basis=6).fit(X, labels)
    yield "hebbian_pca", HebbianPCA(Gaussian(1.0), max_basis=6).fit(X)
    yield "norma_regressor", NormaRegressor(Gaussian(1.0), loss="huber", max_basis=6, record=True).fit(X, y)
    yield "norma_classifier", NormaClassifier(Gaussian(1.0), max_basis=6).fit(X, labels)
    yield "norma_novelty_detector", NormaNoveltyDetector(Gaussian(1.0), nu=0.3).fit(X)
    for name, model in [("svr", SVR()), ("svc", SVC()), ("one_class", OneClassSVM(nu=0.3))]:
        small = compress(model.fit(X, y if name == "svr" else labels), n_vectors=5, random_state=0)
        yield f"compressed_{name}", small.set_params(estimator=None)
    components = NystromPCA(n_components=2, n_basis=12, random_state=0).fit(X)
    yield "compressed_nystrom_pca", compress(components, n_vectors=5, random_state=0)
    yield "expansion", two.expansion_
    yield "gaussian", Gaussian(np.array([0.5, 2.0]), amplitude=3.0)
    yield "sum_of_products", Matern(2.0, nu=2.5) * Linear(0.5) + 2.0 * Polynomial(degree=2)
    yield "wendland", Wendland(3.0, smoothness=1)
    yield "basis", PivotedCholesky().select(X, y, Gaussian(1.0), 6, random_state=0)


def answers(model):
    """All that a model says of the queries, by name."""
    if hasattr(model, "evaluate"):
        return {"values": model.evaluate(QUERIES), "variances": model.variances(QUERIES)}
    if hasattr(model, "taken"):
        return {"points": model.points}
    if hasattr(model, "transform") and not hasattr(model, "predict"):
        return {"transform": model.transform(QUERIES)}
    if not hasattr(model, "predict"):
        return {"kernel": model(QUERIES)}
    found = {"predict": model.predict(QUERIES)}
    if hasattr(model, "decision_function"):
        found["decision"] = model.decision_function(QUERIES)
    elif "return_std" in inspect.signature(model.predict).parameters:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of reduced rank, whose variances may be negative
            found["std"] = model.predict(QUERIES, return_std=True)[1]
    return found


def main():
    """Write the folder of the present format."""
    folder = HERE / f"format_{container.VERSION}"
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    said = {}
    for name, model in models():
        save(model, folder / f"{name}.mercer")
        said |= {f"{name}.{what}": value for what, value in answers(model).items()}
    np.savez_compressed(folder / "answers.npz", **said)


if __name__ == "__main__":
    main()
