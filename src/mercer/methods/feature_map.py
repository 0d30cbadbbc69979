r"""Nyström features: the rows of :math:`K_{nm}K_{mm}^{-1/2}`, whose inner products approximate the kernel.

==============  ==================  =======  ====================================================
symbol          code                shape    meaning
==============  ==================  =======  ====================================================
K_mm = LLᵀ      ``frame.lower``     (m, m)   kernel matrix of the basis
R               ``root``            (m, m)   with RRᵀ = K_mm⁻¹: K_mm^(-1/2), or L⁻ᵀ
φ(x) = Rᵀk_m(x)  the expansion      (m,)     features of a row
==============  ==================  =======  ====================================================
"""

from typing import Literal

import numpy as np
from scipy.linalg import svd

from mercer.methods.frame import Frame
from mercer.model import KernelExpansion

Root = Literal["symmetric", "cholesky"]


def feature_map(frame: Frame, root: Root) -> KernelExpansion:
    """Return φ as an expansion, whose coefficients are R; the inner products of features are k_mᵀK_mm⁻¹k_m by both."""
    m = len(frame.lower)
    if root == "cholesky":
        coefficients = frame.unwhiten(np.eye(m))
    else:  # L = PSWᵀ, K_mm^(-1/2) = PS⁻¹Pᵀ: the factor has the root of the condition number of K_mm
        left, values, _ = svd(frame.lower, check_finite=False)
        coefficients = (left / values) @ left.T
    return KernelExpansion(frame.kernel, frame.basis.points, coefficients, np.zeros(m))
