"""What every executor is, and which one is in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from mercer._typing import AnyArray
from mercer.engine.passes import Pass, RowPass
from mercer.engine.table import Table

__all__ = ["Executor", "given_executor", "using"]

State = TypeVar("State")
Result = TypeVar("Result")


class Executor(Protocol):
    """Runs passes over tables: on threads of this process, or elsewhere.

    Results depend on the pass and the table only, not on timing or the number of workers: each partition is summed on
    its own, and the sums are merged in their order.
    """

    verbose: int

    def reduce(self, work: Pass[State, Result], table: Table) -> Result:
        """Sum over all rows."""

    def map(self, work: RowPass, table: Table) -> AnyArray:
        """Compute something of every row; the first axis of the result runs over the rows."""


_given: ContextVar[Executor | None] = ContextVar("mercer_executor", default=None)


@contextmanager
def using(executor: Executor) -> Iterator[None]:
    """Run estimators on this executor inside the ``with`` block, whatever their ``n_jobs``."""
    token = _given.set(executor)
    try:
        yield
    finally:
        _given.reset(token)


def given_executor() -> Any:
    """The executor of the innermost ``using``, or None."""
    return _given.get()
