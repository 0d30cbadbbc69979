"""Ways to choose basis points, one per file."""

from mercer.basis.base import Basis, BasisStrategy
from mercer.basis.choose import choose_basis
from mercer.basis.uniform import Uniform

__all__ = ["Basis", "BasisStrategy", "Uniform", "choose_basis"]
