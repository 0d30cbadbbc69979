"""Nyström features: the kernel as an inner product of few numbers per row."""

from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np

from mercer._stored import stored
from mercer._stored.checks import check_estimator
from mercer._validation import StrOptions, parameters
from mercer.engine import ArrayTable
from mercer.estimators.collections import takes_collections
from mercer.estimators.shell import BASIS_CONSTRAINTS, OnBasis, all_or_nothing, read_rows
from mercer.estimators.transformation import KernelTransformer
from mercer.methods.feature_map import Root, feature_map
from mercer.methods.frame import Frame
from mercer.model import KernelExpansion


@stored
@parameters
class NystromFeatures(KernelTransformer, OnBasis):
    r"""Features of rows on a basis of m points, whose inner products approximate the kernel.

    A row becomes :math:`\varphi(x) = R^\top k_m(x)` with :math:`RR^\top = K_{mm}^{-1}`, so that
    :math:`\varphi(x)^\top\varphi(x') = k_m(x)^\top K_{mm}^{-1}k_m(x')`, which is :math:`k(x, x')` if one of the rows is
    a basis point, and never more than the kernel has: K less the features' Gram matrix is positive semi-definite. A
    linear model of the features is a kernel machine on the basis.

    With the symmetric root this is scikit-learn's ``Nystroem``, with a basis of one's choice, in tiles on all cores.

    ``fit`` takes time m³ and what the choice of the basis takes; ``transform`` n·m² and the memory of its result.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        As in ``NystromRegressor``. ``White`` in it is left out.
    n_basis : int, default=100
        m, and the number of features; if there are fewer rows, all are taken.
    basis : str, strategy or array (m, d), default="uniform"
        How basis points (landmarks) are chosen: a name, a strategy of ``mercer.basis`` that needs no targets, or the
        points themselves.
    root : {"symmetric", "cholesky"}, default="symmetric"
        R: :math:`K_{mm}^{-1/2}`, by which each feature belongs to a basis point; or :math:`L^{-\top}` of
        :math:`K_{mm} = LL^\top`, by which the first j features are those of the first j points alone.
    random_state : int, RandomState or None, default=None
        For the choice of the basis, and of the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress on a terminal, 2 elsewhere, too.

    Attributes
    ----------
    kernel_, basis_, basis_index_, rank_, basis_note_, basis_residual_trace_
        As in ``NystromRegressor``. There are ``rank_`` features: points that the others span to rounding are left out.
    expansion_ : KernelExpansion
        The features, one per column.

    See Also
    --------
    NystromPCA : The directions in which these features vary most.
    NystromRegressor : Ridge regression on these features, with error bars, without storing them.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromFeatures
    >>> from mercer.kernels import Gaussian
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> features = NystromFeatures(Gaussian(2.0), n_basis=50, random_state=0).fit_transform(X)
    >>> features.shape
    (1000, 50)
    >>> bool(np.max(np.abs(features @ features.T - Gaussian(2.0)(X))) < 0.01)
    True
    """

    n_basis: int = 100
    root: Root = "symmetric"

    _instead_of_noise = "n_basis"
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BASIS_CONSTRAINTS,
        "root": [StrOptions({"symmetric", "cholesky"})],
    }

    expansion_: KernelExpansion = field(init=False)
    _fitted_frame: Frame = field(init=False)

    @takes_collections
    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the basis from the rows of X (n, d); y is ignored."""
        self._validate_params()
        with all_or_nothing(self):
            table = ArrayTable(read_rows(self, X, reset=True))
            self._fitted_frame = self._choose_frame(table, np.dtype(np.float64))
            self.expansion_ = feature_map(self._fitted_frame, self.root)
        return self

    @property
    def _frame(self) -> Frame:
        return self._fitted_frame

    def check_stored(self) -> None:
        """Refuse an archive whose parts do not fit together."""
        m, n_features = self.expansion_.points.shape
        check_estimator(self, n_outputs=m, n_features=n_features)
        self._fitted_frame.check_expansion(self.expansion_, m)
