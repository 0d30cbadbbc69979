"""Stochastic gradient descent on the regularised risk, for which rows are kernel values to those before them."""

from mercer.solvers.stochastic.descent import Block, descend
from mercer.solvers.stochastic.losses import LOSSES, Loss
from mercer.solvers.stochastic.steps import SCHEDULES, Steps, rates

__all__ = ["LOSSES", "SCHEDULES", "Block", "Loss", "Steps", "descend", "rates"]
