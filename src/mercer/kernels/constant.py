"""The constant kernel."""

from typing import ClassVar

from mercer._stored import stored
from mercer.kernels.base import check_positive
from mercer.kernels.polynomial import Polynomial


@stored
class Constant(Polynomial):
    """Constant kernel, k(x, z) = A: in a sum, the prior variance of an intercept.

    With ``intercept=True`` estimators add an intercept without a prior, and this kernel changes nothing.

    Parameters
    ----------
    amplitude : float, default=1.0
        A.

    Examples
    --------
    >>> from mercer.kernels import Constant, Gaussian
    >>> (Gaussian() + Constant(2.0))([[0.0]], [[0.0], [9.0]]).round(4)
    array([[3., 2.]])
    """

    name: ClassVar[str | None] = None
    log_parameters: ClassVar[tuple[str, ...]] = ("amplitude",)
    same_diagonal: ClassVar[bool] = True

    degree, scale, offset = 1, 0.0, 1.0

    def __init__(self, amplitude: float = 1.0) -> None:
        self.amplitude = amplitude

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` for an amplitude that is not positive."""
        check_positive(self.amplitude, "amplitude")

    closed_form = Polynomial.closed_form
