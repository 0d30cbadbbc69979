"""scikit-learn's contract: its checks as parameters of a test, all of them or those that a configuration can break."""

import re

import pytest
from sklearn import config_context
from sklearn.utils.estimator_checks import estimator_checks_generator

# Checks that look at the class alone, or at what happens before any parameter but n_jobs is read. All other checks, and
# any that later versions of scikit-learn add, run on every configuration.
OF_THE_CLASS = {
    # Names, tags, signatures.
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_repr",
    "check_estimator_sparse_tag",
    "check_estimator_tags_renamed",
    "check_fit_score_takes_y",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_positive_only_tag_during_fit",
    "check_regressors_no_decision_function",
    "check_set_params",
    "check_valid_tag_types",
    # Refused before anything is computed.
    "check_complex_data",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_fit2d_predict1d",
    "check_classifiers_regression_target",
    "check_requires_y_none",
    "check_sample_weights_shape",
    "check_supervised_y_2d",
    "check_supervised_y_no_nan",
    # Turned into arrays before anything is computed.
    "check_array_api_input",
    "check_classifier_data_not_an_array",
    "check_dtype_object",
    "check_regressor_data_not_an_array",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_pandas_series",
    # Set where rows are read.
    "check_fit_check_is_fitted",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    # The same checks run on arrays, and on read-only maps of float32.
    "check_classifiers_train(readonly_memmap=True)",
    "check_regressors_train(readonly_memmap=True)",
}


def name_of(check):
    """The name of a check with its arguments, as scikit-learn writes it."""
    arguments = ",".join(f"{key}={value}" for key, value in check.keywords.items())
    return f"{check.func.__name__}({arguments})" if arguments else check.func.__name__


def is_of_the_class(check):
    return not OF_THE_CLASS.isdisjoint({check.func.__name__, name_of(check)})


def contract(model, *, full=True, fails=None, unsettled=None, marks=()):
    """Parameters (estimator, check) of a test.

    Parameters
    ----------
    model : estimator
    full : bool
        Whether to run the checks of the class, too.
    fails, unsettled : dict of reasons by name of a check
        Checks that must fail; and such as are not run, as nothing says whether they pass.
    """
    fails, unsettled = fails or {}, unsettled or {}
    with config_context(print_changed_only=True):
        model_id = re.sub(r"\s", "", str(model))
    for estimator, check in estimator_checks_generator(model):
        name, own = check.func.__name__, list(marks)
        if name in fails:
            own.append(pytest.mark.xfail(reason=fails[name], strict=True))
        if name in unsettled:
            own.append(pytest.mark.skip(reason=unsettled[name]))
        if full or not is_of_the_class(check):
            yield pytest.param(estimator, check, marks=own, id=f"{model_id}-{name_of(check)}")
