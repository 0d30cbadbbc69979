r"""Leave-one-out residuals of models that are linear in the targets, by how far each row decides on them.

With M the system that was solved (bordered by ones if there is an intercept), :math:`\alpha = M^{-1}y` and
:math:`t = \partial f(x_i)/\partial y_i`, a row of noise :math:`\lambda/\omega` that loses a part s of its weight gets
the noise :math:`\lambda/(\omega - s)`: M changes by a multiple of :math:`e_ie_i^\top`, and

.. math:: f_{-i}(x_i) = f(x_i) - t\alpha_i/d, \qquad \operatorname{var}_{-i}f(x_i) = \operatorname{var}f(x_i) + t^2/d,
    \qquad d = M^{-1}_{ii} + \frac{\omega(\omega - s)}{\lambda s}.

Of weights that count equal rows s is 1: one of them is left out. Rows of other weights are left out whole, s = ω.
"""

import numpy as np

from mercer._typing import FloatArray
from mercer.engine import Influences, left_out_parts, relative_weights, unit_of
from mercer.model import Calibration
from mercer.model.calibration import share_of_copies


def leave_out(
    found: Influences, targets: FloatArray, weights: FloatArray | None, *, counted: bool, noise: float
) -> Calibration:
    """Calibration by rows of which each is left out; those that the model cannot do without are dropped.

    A variance that is not positive, as a reduced rank approximation may have, is unknown.
    """
    weights = np.ones(len(targets)) if weights is None else weights
    share, ordinary = left_out_parts(weights, counted=counted), unit_of(weights, counted=counted)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        d = found.precisions + weights * ((weights - share) / (noise * share))
        d[~(d > 0)] = np.nan
        residuals = targets - found.fitted + (found.slopes / d)[:, np.newaxis] * found.coefficients
        variances = found.variances + found.slopes**2 / d + noise / ordinary  # as in Calibration
        alone = targets - found.fitted + (found.slopes / found.precisions)[:, np.newaxis] * found.coefficients
    variances = np.where(variances > 0, variances, np.inf)
    known = np.all(np.isfinite(residuals), axis=1)
    weights = relative_weights(weights, counted=counted)
    copied = share_of_copies(residuals, alone) if counted else 1.0
    return Calibration(targets[known], residuals[known], variances[known], weights[known], ordinary, copied)
