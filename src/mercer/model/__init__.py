"""What every fit ends in: a kernel expansion, and what its columns mean."""

from mercer.model.expansion import KernelExpansion, Variance, as_dtype
from mercer.model.outputs import Components, Novelty, OneVsOne, OneVsRest, Outputs, Regression, read_outputs

__all__ = [
    "Components",
    "KernelExpansion",
    "Novelty",
    "OneVsOne",
    "OneVsRest",
    "Outputs",
    "Regression",
    "Variance",
    "as_dtype",
    "read_outputs",
]
