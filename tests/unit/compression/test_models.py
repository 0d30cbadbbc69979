"""Compressed models keep scikit-learn's contract, and the original's shapes, signs and classes."""

import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier, is_outlier_detector, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, NuSVC, OneClassSVM
from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer import ExactRegressor, KernelExpansion, NystromClassifier
from mercer.compression import CompressedClassifier, CompressedOutlierDetector, CompressedRegressor, compress
from mercer.compression.models import most_votes
from mercer.kernels import Gaussian

OPTIONS = {"n_vectors": 10, "random_state": 0}


@parametrize_with_checks(
    [
        CompressedRegressor(SVR(C=10.0), **OPTIONS),
        CompressedRegressor(KernelRidge(kernel="rbf"), **OPTIONS),
        CompressedRegressor(ExactRegressor(), **OPTIONS),
        CompressedRegressor(make_pipeline(StandardScaler(), SVR(C=10.0)), **OPTIONS),
        CompressedRegressor(make_pipeline(Nystroem(n_components=1, random_state=0), Ridge()), **OPTIONS),
        CompressedClassifier(SVC(), **OPTIONS),
        CompressedClassifier(NystromClassifier(random_state=0), **OPTIONS),
        CompressedOutlierDetector(OneClassSVM(nu=0.1), **OPTIONS),
    ]
)  # fmt: skip
def test_scikit_learn_contract(estimator, check):
    check(estimator)
