"""Array aliases shared by all layers."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
AnyArray: TypeAlias = npt.NDArray[Any]
RandomState: TypeAlias = int | np.random.RandomState | None
