"""The linear kernel."""

from typing import ClassVar

from mercer._stored import stored
from mercer.kernels.polynomial import Polynomial


@stored
class Linear(Polynomial):
    r"""Linear kernel, :math:`A\,x^\top z`.

    Parameters
    ----------
    amplitude : float, default=1.0
        A, the prior variance of each coefficient of the linear function.

    Examples
    --------
    >>> from mercer.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    name: ClassVar[str | None] = "linear"
    log_parameters: ClassVar[tuple[str, ...]] = ("amplitude",)

    degree, scale, offset = 1, 1.0, 0.0

    def __init__(self, amplitude: float = 1.0) -> None:
        self.amplitude = amplitude

    closed_form = Polynomial.closed_form
