"""What every fit ends in: a kernel expansion, and what its columns mean."""

from mercer.model.calibration import Calibration, Sample, leave_one_out
from mercer.model.expansion import KernelExpansion, Variance, as_dtype
from mercer.model.outputs import Components, Novelty, OneVsOne, OneVsRest, Outputs, Regression, read_outputs
from mercer.model.probabilities import Probabilities

__all__ = [
    "Calibration",
    "Components",
    "KernelExpansion",
    "Novelty",
    "OneVsOne",
    "OneVsRest",
    "Outputs",
    "Probabilities",
    "Regression",
    "Sample",
    "Variance",
    "as_dtype",
    "leave_one_out",
    "read_outputs",
]
