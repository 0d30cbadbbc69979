"""Walks over the public estimators: who there is, what each can do, and tests over the combinations that exist."""

import inspect
from contextlib import nullcontext
from functools import cache

import numpy as np
import pytest
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

import mercer
from mercer import (
    CommitteeRegressor,
    CompactClassifier,
    CompactRegressor,
    ExactClassifier,
    ExactRegressor,
    NormaClassifier,
    NormaNoveltyDetector,
    NormaRegressor,
    NystromSVC,
    NystromSVR,
    OnlineClassifier,
    OnlineRegressor,
    PseudoInputRegressor,
    ReducedRankRegressor,
)
from mercer.exceptions import JitterWarning
from mercer.kernels import Compact, CompactGaussian, Gaussian, Matern, Wendland


def public_estimators():
    members = [getattr(mercer, name) for name in mercer.__all__]
    return [member for member in members if inspect.isclass(member) and issubclass(member, BaseEstimator)]


# By the kind of an estimator, the method whose numbers say most about a fitted model.
OUTPUTS = {
    "classifier": "decision_function",
    "regressor": "predict",
    "outlier_detector": "score_samples",
    "transformer": "transform",
}
# Whatever is asked of a fitted model about rows.
ANSWERS = ("predict", "decision_function", "predict_proba", "score_samples", "transform")


def kind(model):
    """What a model is, by its tags; a transformer is what has no other kind."""
    tags = get_tags(model)
    if tags.estimator_type is None and tags.transformer_tags is not None:
        return "transformer"
    return tags.estimator_type


def of_kind(classes, *kinds):
    return [cls for cls in classes if kind(cls()) in kinds]


# Nothing is searched for, and whatever is new joins the dictionary: what holds for a given kernel, noise and number of
# points can then be tested.
# Without a tube, support vector regression is ridge regression.
STILL = (
    {"fit_points": False, "fit_kernel": False, "fit_noise": False},
    {"selection": "novelty", "novelty_tol": 0.0},
    {"epsilon": 0.0},
)


COMPACT = (CompactClassifier, CompactRegressor)


MACHINES = (NystromSVC, NystromSVR)  # whose C = 1/2λ stands for a noise, and which report no spread


def cut_off(kernel):
    """A kernel of compact support like the one that is given, and the same whatever the number of features."""
    if isinstance(kernel, str):
        kernel = {"gaussian": Gaussian("median"), "matern": Matern("median")}.get(kernel, kernel)
    if type(kernel) is Gaussian:
        return CompactGaussian(kernel.length_scale, exponent=7, amplitude=kernel.amplitude)
    if type(kernel) is Matern:
        scale = kernel.length_scale if isinstance(kernel.length_scale, str) else 4 * kernel.length_scale
        return Wendland(scale, dimension=9, amplitude=kernel.amplitude)
    return kernel


@cache
def still(cls):
    """The same class with other defaults, if it has such choices, and what others understand.

    ``n_basis`` is understood as ``max_basis``, a Gaussian kernel as one that is cut off, and ``noise`` as C = 1/2λ, by
    those that need it.
    """
    signature = inspect.signature(cls)
    choices = next((choice for choice in STILL if choice.keys() <= signature.parameters.keys()), {})
    is_renamed = "max_basis" in signature.parameters
    if not (choices or is_renamed) and cls not in (*COMPACT, *MACHINES):
        return cls

    def __init__(self, *args, **options):  # noqa: N807
        if is_renamed and "n_basis" in options:
            options["max_basis"] = options.pop("n_basis")
        if cls in MACHINES and "noise" in options:
            options["C"] = 0.5 / options.pop("noise")
        if cls in COMPACT:
            args, options = [cut_off(arg) for arg in args], {k: cut_off(v) for k, v in options.items()}
        cls.__init__(self, *args, **(choices | options))

    changed = [p.replace(default=choices.get(p.name, p.default)) for p in signature.parameters.values()]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = signature.replace(parameters=[own, *changed])
    subclass = type(
        cls.__name__, (cls,), {"__init__": __init__, "__module__": __name__, "__qualname__": f"_STILL.{cls.__name__}"}
    )
    setattr(_STILL, cls.__name__, subclass)  # where pickle finds it
    return subclass


class _STILL:
    pass


PUBLIC = public_estimators()
# Those that have a kernel to choose, and solve for a noise; the others choose it themselves, or have steps instead.
DESCENDING = (NormaClassifier, NormaNoveltyDetector, NormaRegressor)
ESTIMATORS = [still(cls) for cls in PUBLIC if "kernel" in inspect.signature(cls).parameters and cls not in DESCENDING]
REGRESSORS = of_kind(ESTIMATORS, "regressor")
CLASSIFIERS = of_kind(ESTIMATORS, "classifier")
SUPERVISED = of_kind(ESTIMATORS, "regressor", "classifier")  # whose score says how well they learned
WEIGHTED = [cls for cls in ESTIMATORS if has_fit_parameter(cls, "sample_weight")]
ON_BASIS = [cls for cls in ESTIMATORS if "n_basis" in cls().get_params()]
ONLINE = [cls for cls in ESTIMATORS if hasattr(cls, "partial_fit")]
WITH_SPREAD = [cls for cls in REGRESSORS if hasattr(cls, "scale_")]  # whose predictions have standard deviations
FORGETFUL = [cls for cls in ESTIMATORS if hasattr(cls, "forget")]
STREAMS = (OnlineClassifier, OnlineRegressor)
LEARN = ("fit", "partial_fit", "forget")
N = 40  # rows of the fixture of unit/estimators
# Ways to part the rows of a committee; by default tests are smaller than a block.
COMMITTEES = [
    {"block_size": 1},
    {"block_size": 7},
    {"block_size": 7, "partition": "kmeans"},
    {"block_size": 5, "partition": "order"},
]


def over(name, values):
    return pytest.mark.parametrize(name, values, ids=lambda v: v.__name__ if inspect.isclass(v) else str(v))


def pairs(names, values):
    """Parametrize over the combinations that exist: a case that does not apply is not a test."""
    ids = [f"{cls.__name__}-{value}" for cls, value in values]
    return pytest.mark.parametrize(names, values, ids=ids)


def with_methods(classes, methods):
    existing = [(cls, method) for cls in classes for method in methods if hasattr(cls, method)]
    return pairs(("estimator", "method"), existing)


def has_gcv(estimator):
    """Whether noise="gcv" is a choice."""
    choosing = (ExactRegressor, ExactClassifier, CommitteeRegressor, ReducedRankRegressor)
    return issubclass(estimator, choosing) or hasattr(estimator, "noise_path")


def has_no_noise(estimator):
    """Whether noise=0 is a choice on any rows; that it is refused by the others is tested."""
    return not issubclass(estimator, (*STREAMS, *COMPACT, PseudoInputRegressor, ReducedRankRegressor))


_LOSSES = {
    "NystromSVC": ("squared_hinge", "hinge"),
    "NystromSVR": ("squared_epsilon_insensitive", "epsilon_insensitive"),
    "NormaClassifier": ("hinge", "log_loss", "squared_error"),
    "NormaRegressor": ("squared_error", "huber", "epsilon_insensitive", "quantile"),
}


def accepts(estimator, options):
    """Whether an estimator has these parameters, this noise and this loss, and takes this kernel."""
    if not set(options) <= set(inspect.signature(estimator).parameters):
        return False
    if options.get("loss") not in (None, *_LOSSES.get(estimator.__name__, ())):
        return False
    if "nu" in options and "loss" not in options and estimator is NormaRegressor:  # whose default loss has none
        return False
    if "kernel" in options and issubclass(estimator, COMPACT) != isinstance(options["kernel"], Compact):
        return False
    noise = options.get("noise", 0.1)
    return has_gcv(estimator) if noise == "gcv" else (noise != 0 or has_no_noise(estimator))


def with_noises(classes, noises):
    return pairs(("estimator", "noise"), [(cls, n) for cls in classes for n in noises if accepts(cls, {"noise": n})])


def with_options(classes, choices):
    return pairs(("estimator", "options"), [(cls, c) for cls in classes for c in choices if accepts(cls, c)])


each_estimator = over("estimator", ESTIMATORS)
with_any_kernel = over("estimator", [cls for cls in ESTIMATORS if not issubclass(cls, COMPACT)])
regressors_with_any_kernel = over("estimator", [cls for cls in REGRESSORS if not issubclass(cls, COMPACT)])
each_supervised = over("estimator", SUPERVISED)
each_weighted = over("estimator", WEIGHTED)
each_regressor = over("estimator", REGRESSORS)
each_with_spread = over("estimator", WITH_SPREAD)
each_classifier = over("estimator", CLASSIFIERS)
each_online = over("estimator", ONLINE)
each_forgetful = over("estimator", FORGETFUL)
each_method = with_methods(ESTIMATORS, LEARN)


def jitter_where_there_is_no_noise(estimator, noise):
    """A committee warns of it, as a block that holds basis points has nothing else on its diagonal; others do not."""
    if estimator is CommitteeRegressor and noise == 0:
        return pytest.warns(JitterWarning, match="singular to rounding given the basis")
    return nullcontext()


def targets_for(estimator, rows):
    """Labels for a classifier, numbers for all others: those that learn without targets ignore them."""
    values = np.asarray(rows[:, 0] + np.sin(2 * rows[:, 1]), dtype=np.float64)
    return np.where(values > 0, 1, 0) if is_classifier(estimator()) else values


def strengths(estimator, noises):
    """By name, values of the parameter that says how smooth a function is: noises, or C = 1/2λ."""
    return {"C": [0.5 / noise for noise in noises]} if issubclass(estimator, MACHINES) else {"noise": noises}


def output(model, rows):
    """The numbers that say most about a fitted model."""
    return getattr(model, OUTPUTS[kind(model)])(rows)


def answers(model, rows):
    """All that a fitted model says about rows, by method."""
    return {method: getattr(model, method)(rows) for method in ANSWERS if hasattr(model, method)}


def assert_close(actual, expected, tolerance=1e-8):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * max(1e-300, np.max(np.abs(expected))))


def assert_refused(model, call, rows, error, message):
    """The call fails with that message and leaves the model as it was, to the bit."""
    attributes, before = dict(vars(model)), output(model, rows)
    with pytest.raises(error, match=message):
        call()
    assert vars(model).keys() == attributes.keys()
    np.testing.assert_array_equal(output(model, rows), before)
