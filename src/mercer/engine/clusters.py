"""Where work runs on a cluster. Dask is imported by those who use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from mercer._typing import AnyArray
from mercer.engine.passes import given_executor, using
from mercer.engine.source import Source


def is_collection(values: Any) -> bool:
    """Whether it is a collection of Dask's: an array, a data frame, or a list of delayed partitions."""
    if isinstance(values, list):
        return bool(values) and type(values[0]).__module__ == "dask.delayed"
    return type(values).__module__.partition(".")[0] in ("dask", "dask_expr")


def as_source(X: Any, y: Any = None, sample_weight: Any = None) -> Source:
    """A collection as a source of rows, with labels and weights that are collections or arrays."""
    _need_dask()
    from mercer.engine.partitions import DaskSource

    return DaskSource(X, y, sample_weight)


def on_its_cluster(values: Sequence[Any], *, verbose: int) -> AbstractContextManager[None]:
    """Run on the cluster of these collections, if no other place is in use and there is one."""
    from mercer.engine.executors.dask import Dask, client_of

    client = client_of([each for each in values if is_collection(each)])
    if client is None or given_executor() is not None:
        return nullcontext()
    return using(Dask(client, verbose=verbose))


def ask_lazily(question: Callable[[Any], AnyArray], X: Any, example: AnyArray) -> Any:
    """What a question answers about each partition of a collection, computed when it is asked for."""
    from mercer.engine.executors.dask import ask_lazily as ask

    return ask(question, X, example)


@contextmanager
def on(client: Any = None, *, verbose: int = 0) -> Iterator[None]:
    """Run fits and predictions inside the ``with`` block on a Dask cluster, whatever the rows are.

    Collections find the default client by themselves; arrays and files need this. No model keeps the client.

    Parameters
    ----------
    client : distributed.Client or a cluster, optional
        The default client if none is given.
    verbose : int, default=0
        1 shows progress.
    """
    _need_dask()
    from mercer.engine.executors.dask import Dask, as_client

    with using(Dask(as_client(client), verbose=verbose)):
        yield


@contextmanager
def local_cluster(n_workers: int | None = None, *, processes: bool = True) -> Iterator[Any]:
    """Start a Dask cluster on this machine, to try one; gives its client, which is the default one inside the block.

    Parameters
    ----------
    n_workers : int, optional
        Workers of one thread each; by default one for each core.
    processes : bool, default=True
        Whether workers are processes, which share no memory, or threads of this one.
    """
    _need_dask()
    from mercer.engine.executors.dask import local_cluster as start

    with start(n_workers, processes=processes) as client:
        yield client


def _need_dask() -> None:
    try:
        import mercer.engine.executors.dask  # noqa: F401
    except ImportError as error:
        raise ImportError(f"a cluster needs dask and distributed ({error}): pip install 'mercer[dask]'") from error
