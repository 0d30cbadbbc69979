"""What every executor is."""

from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = ["Executor", "Task", "Tick"]

Result = TypeVar("Result")
Tick = Callable[[int], None]
Task = Callable[[int, int, Tick], Result]


class Executor(Protocol):
    """Who works on the rows: threads of this process, or others elsewhere.

    Attributes
    ----------
    n_jobs : int
        How many workers there are.
    verbose : int
        1 shows progress.
    shares_memory : bool
        Whether workers can write into arrays of the caller. If not, what they return is shipped and put in its place.
    """

    n_jobs: int
    verbose: int
    shares_memory: bool

    def run(
        self, task: Task[Result], n_rows: int, *, tile: int, workers: int | None = None, name: str = "rows"
    ) -> list[Result]:
        """Call ``task(start, stop, tick)`` on contiguous spans that cover all rows; return the results in their order.

        The task calls ``tick(rows)`` after each tile: it counts progress, and raises to stop the work when another
        worker has failed or the user has pressed Ctrl-C.
        """
