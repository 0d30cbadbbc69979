r"""Stationary kernels of compact support: exactly zero beyond a radius, so that Gram matrices are sparse.

The rule for the exponent guarantees a positive definite kernel on any rows in d dimensions, but in many dimensions it
makes the kernel so steep that a row hardly sees its neighbours. A smaller exponent is accepted too: the matrix of rows
that do not fill the d dimensions is often positive definite all the same, which is then to be checked on these rows.

==========  ==================  ============================================================
symbol      code                meaning
==========  ==================  ============================================================
ℓ           ``length_scale``    of the Gaussian; for Wendland the radius of the support
θ           ``radius``          of the support, in units of ℓ
ν           ``exponent``        of Askey's factor
k           ``smoothness``      functions of the model are differentiable k times
p           ``_p``              ⌊dimension/2⌋ + 2k + 1, the power of Wendland's factor
==========  ==================  ============================================================
"""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from mercer._typing import FloatArray
from mercer.kernels.profiles import CUTOFF, representable
from mercer.kernels.stationary import Stationary


class Compact(Stationary):
    """A stationary kernel that is exactly zero where r = |(x - z)/ℓ| is at least ``support``.

    A subclass defines the radius and the steepness besides the formula, for parameters that are numbers.
    """

    @property
    @abstractmethod
    def radius(self) -> float:
        """θ, of a kernel whose length scale is a number."""

    @property
    @abstractmethod
    def steepness(self) -> float:
        """-dk/d(r/θ) at r = 0 relative to the amplitude, of a kernel for a given dimension; 0 without a kink."""

    @abstractmethod
    def is_guaranteed(self, n_features: int) -> bool:
        """Whether the kernel is known to be positive definite on all rows of that width."""

    @abstractmethod
    def for_dimension(self, n_features: int) -> Self:
        """A copy in which the parameters that follow the rows' width are numbers."""

    def _number(self, name: str) -> Any:
        """A parameter that follows the rows' width unless it is given."""
        value = getattr(self, name)
        if value is None:
            msg = f"{name}=None is a number only for rows of a given width: call kernel.for_dimension(n_features)."
            raise ValueError(msg)
        return value

    def support(self, n_features: int) -> float:
        """Radius, in units of x/length_scale, from which on the kernel is exactly zero."""
        self.check(n_features)
        return self.radius

    def with_radius(self, radius: float) -> Self:
        """A copy whose support has that radius, in the units of the features, the same for all."""
        copy: Self = clone(self)
        copy.length_scale = 1.0
        copy.length_scale = radius / copy.radius
        return copy

    def check(self, n_features: int | None = None) -> None:
        """Let ``length_scale="auto"`` pass, which estimators on sparse matrices replace by a number."""
        if not self.is_automatic:
            super().check(n_features)

    @property
    def is_automatic(self) -> bool:
        """Whether the length scale is to be found by counting neighbours."""
        return isinstance(self.length_scale, str) and self.length_scale == "auto"

    def resolve(self, sample: FloatArray, weights: FloatArray | None = None) -> Self:
        """Replace ``"median"``, and what follows the rows' width, by numbers."""
        if self.is_automatic:
            msg = "length_scale='auto' is for CompactRegressor and CompactClassifier, which count neighbours."
            raise ValueError(msg)
        return super().resolve(sample, weights).for_dimension(sample.shape[1])

    def of_squares(self, squares: FloatArray, n_features: int) -> None:
        """Replace squared scaled distances Σ_f (x_f - z_f)²/ℓ_f² by kernel values, in place; infinite ones are allowed.

        The array has any shape, is float32 or float64, and C-contiguous.
        """
        if squares.dtype not in CUTOFF or not squares.flags.c_contiguous:
            msg = f"squares must be a C-contiguous float32 or float64 array, got {squares.dtype} {squares.shape}."
            raise ValueError(msg)
        self.check(n_features)
        profile = self.for_dimension(n_features).profile(squares.dtype)
        squares *= -0.5  # E = -r²/2
        profile(squares.reshape(1, squares.size))

    def limits(self, dtype: np.dtype[Any]) -> tuple[float, ...]:
        """Look at rows farther from the centre than the support, and there at pairs within the support.

        So the kernel is as precise, and its edge as sharp, for a narrow support as for a wide one.
        """
        far, _, rounding, kink, _ = super().limits(dtype)
        radius = representable(self.radius, dtype)
        edge = -0.5 * radius**2
        # Of rows that are not far |x̃| is at most 8 or the radius, and with it grows the error of r: the steepness times
        # that error is to be no larger than for a Matérn kernel.
        steep = max(1.0, self.steepness / max(radius, 8.0))
        negligible = max(edge, float(np.log(CUTOFF[dtype])))
        return min(far, -edge), negligible, rounding, kink * steep**2, edge
