"""Noise, written as a kernel."""

from typing import Any, ClassVar, NoReturn

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.kernels.base import Gradients, Kernel, check_positive, finite_table


@stored
class White(Kernel):
    """Noise: the level between a row and itself, zero between it and every other row, equal ones included.

    In a sum, ``Gaussian() + White(0.1)``, it is the same as a noise of 0.1 beside ``Gaussian()``. Estimators take it
    out of the kernel and add its level to their ``noise``; if that is to be chosen (``"auto"``, ``"gcv"``, ``"loo"``),
    the level is the noise, and nothing is chosen. What predicts has no noise, so ``kernel_`` is without it. A product
    with a kernel of constant diagonal is noise, too. Everything else that takes a kernel refuses it.

    Parameters
    ----------
    level : float, default=1.0
        The variance of the noise, in units of the kernel's amplitude.

    Examples
    --------
    >>> from mercer.kernels import Gaussian, White
    >>> kernel = Gaussian() + White(0.5)
    >>> kernel([[0.0], [1.0]]).round(4)
    array([[1.5   , 0.6065],
           [0.6065, 1.5   ]])
    >>> kernel([[0.0], [1.0]], [[0.0]]).round(4)
    array([[1.    ],
           [0.6065]])
    """

    log_parameters: ClassVar[tuple[str, ...]] = ("level",)
    same_diagonal: ClassVar[bool] = True

    def __init__(self, level: float = 1.0) -> None:
        self.level = level

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` for a level that is not positive."""
        check_positive(self.level, "level")

    @property
    def noise_level(self) -> float:
        """The level."""
        return check_positive(self.level, "level")

    def without_noise(self) -> None:
        """Nothing."""
        return

    def __call__(self, rows: FloatArray, points: FloatArray | None = None, out: FloatArray | None = None) -> FloatArray:
        """The level times the identity, shape (n, n), of rows alone; of rows and points zero, (n, m)."""
        rows = finite_table(rows, "rows")
        n_points = len(rows) if points is None else len(finite_table(points, "points"))
        if out is None:
            out = np.empty((len(rows), n_points), dtype=np.float32 if rows.dtype == np.float32 else np.float64)
        out[...] = 0.0
        if points is None:
            np.fill_diagonal(out, self.noise_level)
        return out

    def bind(self, points: FloatArray, dtype: Any = np.float64) -> NoReturn:
        """Refused: noise does not connect rows with points."""
        raise TypeError(
            "the kernel White is noise, which only estimators take out of a kernel. Here give the kernel without it, "
            "kernel.without_noise(), and where there is a noise add kernel.noise_level to it."
        )

    def diagonal(self, rows: FloatArray) -> FloatArray:
        """The level."""
        return np.full(len(rows), self.noise_level)

    def gradients(
        self, rows: FloatArray, points: FloatArray, weights: FloatArray, *, parameters: bool = True
    ) -> Gradients:
        """Zero, as between rows and points."""
        return np.zeros(np.shape(points)), {"level": np.zeros(())} if parameters else {}

    def diagonal_gradient(self, rows: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """By log level, the level."""
        return {"level": np.asarray(np.sum(weights) * self.noise_level)}

    def _scaled(self, factor: float) -> Kernel:
        return White(self.noise_level * factor)
