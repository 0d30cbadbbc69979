"""The parameter ``kernel`` of an estimator: by name, and with parameters of its own."""

from typing import TYPE_CHECKING, Any, ClassVar, Self

from sklearn.base import BaseEstimator

from mercer.kernels import Kernel, as_kernel
from mercer.methods.frame import total_noise

_NESTED = "kernel__"


class KernelParameter(BaseEstimator):
    """An estimator with a kernel and a noise."""

    _in_memory: ClassVar[bool] = False  # whether all rows must be in memory together

    if TYPE_CHECKING:  # an annotation would declare them as stored
        kernel: Any
        noise: Any

    _instead_of_noise: ClassVar[str] = ""  # of methods without a noise: what is chosen instead

    def _validate_params(self) -> None:
        super()._validate_params()
        if self._instead_of_noise and not isinstance(self.kernel, str) and total_noise(self.kernel, 0.0) > 0:
            name, instead = type(self).__name__, self._instead_of_noise
            raise ValueError(f"{name} has no noise: take White out of the kernel, and choose {instead}.")

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; those of the kernel are ``kernel__…``.

        If the kernel is a name or a function, the kernel object that it stands for takes its place:
        ``kernel__nu=2.5`` makes ``"matern"`` a ``Matern("median", nu=2.5)``.

        Parameters
        ----------
        **params : dict
            Parameters of the estimator, in any order.

        Returns
        -------
        self
        """
        own = {name[len(_NESTED) :]: value for name, value in params.items() if name.startswith(_NESTED)}
        if own and "kernel" in self.get_params(deep=False):
            kernel = params.get("kernel", self.kernel)
            if not hasattr(kernel, "set_params"):
                params = {name: value for name, value in params.items() if not name.startswith(_NESTED)}
                params["kernel"] = self._kernel_object(kernel).set_params(**own)
        super().set_params(**params)
        return self

    def _kernel_object(self, kernel: Any) -> Kernel:
        """The object that a name or a function stands for."""
        if isinstance(kernel, str) and kernel == "precomputed":
            raise ValueError("kernel='precomputed' has no parameters that could be set as kernel__….")
        return as_kernel(kernel)

    @property
    def _total_noise(self) -> Any:
        """The noise given, or how to choose it, with what is noise in the kernel."""
        return total_noise(self.kernel, self.noise)
