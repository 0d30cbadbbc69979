"""Passes on a Dask cluster: the only module that knows Dask.

Everything is said in four words: ``submit`` a function of partitions, merge results by a tree of fixed shape
(``tree_reduce``), make something known to all workers (``broadcast``), and ``gather`` results. Another engine is
another such file. Tasks are pure functions of their inputs and are not pinned, so what a lost worker knew is computed
again, to the same bits.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any
from uuid import uuid4

import cloudpickle
import dask.config
import numpy as np
from dask.base import compute
from dask.delayed import delayed
from distributed import Client, LocalCluster, as_completed, futures_of, get_client, get_worker, rejoin, secede
from distributed.scheduler import KilledWorker

from mercer._typing import AnyArray
from mercer.engine.checkpoint import record_of
from mercer.engine.executors.threads import blas_threads, make_plan
from mercer.engine.passes import Pass, Result, RowPass, Scratch, State, Tile, given_executor
from mercer.engine.progress import Progress
from mercer.engine.table import Part, Table

WIDTH = 4  # states that are merged at once: fewer make more tasks, more wait for one network card
_PREFIX = "mercer"
_LARGE = "distributed.admin.large-graph-warning-threshold"
_config = threading.Lock()  # Dask's settings are those of the process

# ------------------------------------------------------------------------------------------------ the four words


def submit(function: Callable[..., Any], *arguments: Any) -> Any:
    """A task: the function of these arguments, among which may be tasks, also in lists and tuples."""
    name = f"{_PREFIX}-{function.__name__.strip('_')}-{uuid4().hex}"
    return delayed(function, pure=False, traverse=False)(*arguments, dask_key_name=name)


def broadcast(value: Any) -> Any:
    """Something that each worker reads once; as the result of a task it can be made again, if a worker is lost."""
    return submit(_Known.read, cloudpickle.dumps(value))


def tree_reduce(merge: Callable[..., Any], known: Any, items: Sequence[Any]) -> Any:
    """All items in one, merged in their order by a tree whose shape depends on their number alone."""
    while len(items) > 1:
        groups = [items[start : start + WIDTH] for start in range(0, len(items), WIDTH)]
        items = [submit(merge, known, list(group)) if len(group) > 1 else group[0] for group in groups]
    return items[0]


def gather(tasks: Sequence[Any], client: Client | None = None) -> list[Any]:
    """Results of tasks, in their order; without a client, by Dask's own threads in this process."""
    if client is None:
        return list(compute(*tasks))
    with _running(client, tasks) as futures:
        return list(client.gather(futures))


def in_order(tasks: Iterator[Any], client: Client | None = None) -> Iterator[Any]:
    """The result of each task in turn, while the next is made."""
    if client is None:
        for task in tasks:
            yield compute(task)[0]
        return
    ahead: list[Any] = []
    for task in tasks:
        ahead += _started(client, [task])
        if len(ahead) > 1:
            yield gather([ahead.pop(0)], client)[0]
    yield from gather(ahead, client)


def _started(client: Client, tasks: Sequence[Any]) -> list[Any]:
    """Futures of tasks. A table in memory travels with them, and its size is no news to the user."""
    with _config, dask.config.set({_LARGE: "1 PiB"}):
        return list(client.compute(list(tasks)))


@contextmanager
def _running(client: Client, tasks: Sequence[Any]) -> Iterator[list[Any]]:
    """Futures of tasks, which are given up if waiting for them fails or is interrupted."""
    with _aside():
        futures = _started(client, tasks)
        try:
            yield futures
        except KilledWorker as error:
            raise RuntimeError(
                f"a partition was tried several times, and each time the worker died ({error.task}), most likely for "
                "lack of memory: make the partitions smaller, or give the workers more memory."
            ) from None
        except BaseException:
            client.cancel(futures)
            raise


@contextmanager
def _aside() -> Iterator[None]:
    """Inside of a task, leave the worker's threads to other tasks while this one waits for them."""
    try:
        get_worker()
        secede()
    except (ValueError, KeyError):  # not inside of a task, or already aside
        yield
        return
    try:
        yield
    finally:
        rejoin()


# --------------------------------------------------------------------------------------------------- the tasks


class _Quiet(logging.Filter):
    """Errors in tasks of a pass are raised where it was started; workers need not write them down, too."""

    def filter(self, record: logging.LogRecord) -> bool:
        key = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        return not (str(record.msg).startswith("Compute Failed") and str(key).startswith(_PREFIX))


_QUIET = _Quiet()


class _Known:
    """A pass, prepared once in each process before tasks share it."""

    def __init__(self, work: Any) -> None:
        self._work, self._lock, self._ready = work, threading.Lock(), False

    @staticmethod
    def read(pickled: bytes) -> "_Known":
        return _Known(cloudpickle.loads(pickled))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Known.read, (cloudpickle.dumps(self._work),)

    def prepared(self) -> Any:
        with self._lock:
            if not self._ready:
                logging.getLogger("distributed.worker").addFilter(_QUIET)
                self._work.prepare()
                self._ready = True
        return self._work


def _tiles(part: bytes, size: int, inputs: Sequence[Any]) -> Iterator[Tile]:
    """Tiles of a part, whose rows are put in place where they are not shipped with it."""
    read: Part = cloudpickle.loads(part)
    read.put(inputs)
    return read.tiles(size, Scratch())


def _sum(known: _Known, part: bytes, size: int, inputs: Sequence[Any]) -> Any:
    work = known.prepared()
    with blas_threads(1):
        state = work.start()
        for tile in _tiles(part, size, inputs):
            work.add(state, tile)
    return state


def _merge(known: _Known, states: list[Any]) -> Any:
    work, total = known.prepared(), deepcopy(states[0])  # which is kept until it is not needed to start over
    with blas_threads(1):
        for state in states[1:]:
            total = work.merge(total, state)
    return total


def _apply(known: _Known, part: bytes, size: int, inputs: Sequence[Any], n_rows: int) -> AnyArray:
    work, start = known.prepared(), 0
    out = np.empty((n_rows, *work.shape), dtype=work.dtype)
    with blas_threads(1):
        for tile in _tiles(part, size, inputs):
            work.apply(tile, out[start : start + tile.n_rows])
            start += tile.n_rows
    return out


# ------------------------------------------------------------------------------------------------ the executor


class Dask:
    """Run passes on the workers of a Dask cluster, one task for each partition.

    Parameters
    ----------
    client : distributed.Client
    verbose : int, default=0
        1 shows progress.
    """

    def __init__(self, client: Client, *, verbose: int = 0) -> None:
        if client.asynchronous:
            raise ValueError("the client is asynchronous, and fits wait for results: give one that is not.")
        self.client, self.verbose = client, verbose

    def reduce(self, work: Pass[State, Result], table: Table) -> Result:
        """Sum over all rows: each partition on its own, merged by a tree; only the sum comes back.

        A checkpoint keeps sums that are whole.
        """
        record, n_parts = record_of(work, table), len(table.parts())
        if record is None:
            return work.finish(self._sum(work, table))
        if record.n_done < n_parts:
            with record:
                record.keep(self._sum(work, table), n_parts, is_last=True)
        return work.finish(record.state)

    def _sum(self, work: Pass[State, Any], table: Table) -> State:
        known, size, parts = broadcast(work), make_plan(work, table, 1).tile, table.parts()
        sums = [submit(_sum, known, cloudpickle.dumps(part), size, list(part.inputs)) for part in parts]
        state: State = self._gather([tree_reduce(_merge, known, sums)], work, parts, sums)[0]
        return state

    def map(self, work: RowPass, table: Table) -> AnyArray:
        """Compute something of every row."""
        known, size, parts = broadcast(work), make_plan(work, table, 1).tile, table.parts()
        tasks = [submit(_apply, known, cloudpickle.dumps(p), size, list(p.inputs), p.n_rows) for p in parts]
        return np.concatenate(self._gather(tasks, work, parts, tasks))

    def _gather(self, wanted: list[Any], work: Any, parts: Sequence[Part], tasks: list[Any]) -> list[Any]:
        """Results of the wanted tasks; with ``verbose``, say which parts are done, and keep none of them for that."""
        if not self.verbose:
            return gather(wanted, self.client)
        progress = Progress(work.name, sum(part.n_rows for part in parts), verbose=self.verbose)
        rows = {task.key: part.n_rows for task, part in zip(tasks, parts, strict=True)}
        with progress as advance, _running(self.client, [*wanted, *tasks]) as futures:
            for done in as_completed([futures.pop() for _ in tasks]):
                advance(rows[done.key])
            return list(self.client.gather(futures))


# ------------------------------------------------------------------------------------------------- who works


def client_of(collections: Sequence[Any]) -> Client | None:
    """The client to work on these collections: the one in use, else that which holds them, else the default one."""
    executor = given_executor()
    owners = {_address(each.client): each.client for each in futures_of(list(collections))}
    client = executor.client if isinstance(executor, Dask) else next(iter(owners.values()), None)
    if client is None:
        with suppress(ValueError):
            client = get_client()
    others = owners.keys() - {"" if client is None else _address(client)}
    if client is not None and others:
        raise ValueError(
            f"rows are held by the cluster at {min(others)}, and the work is for that at {_address(client)}: "
            "use mercer.on(client) with the client that persisted them, or persist all rows by one client."
        )
    return client


def _address(client: Any) -> str:
    return str(client.scheduler.address)


def as_client(given: Any) -> Client:
    """The client that is meant: one, that of a cluster, or the default one (None)."""
    if given is None:
        try:
            return get_client()
        except ValueError:
            raise ValueError(
                "there is no Dask client: start one (distributed.Client), or try mercer.local_cluster()."
            ) from None
    if isinstance(given, Client):
        return given
    if hasattr(given, "get_client"):
        client: Client = given.get_client()
        return client
    raise TypeError(f"client must be a distributed.Client or a cluster, got a {type(given).__name__}.")


@contextmanager
def local_cluster(n_workers: int | None, *, processes: bool) -> Iterator[Client]:
    """Workers on this machine, one thread each, and a client."""
    options: dict[str, Any] = {"n_workers": n_workers, "threads_per_worker": 1, "processes": processes}
    with LocalCluster(dashboard_address=":0", **options) as cluster, Client(cluster) as client:
        yield client


# ------------------------------------------------------------------------------------------------ predictions


def ask_lazily(question: Callable[[Any], AnyArray], X: Any, example: AnyArray) -> Any:
    """What a question answers about each partition of X, computed when it is asked for.

    ``example`` is an answer about a few rows; frames give frames (or series), arrays arrays.
    """
    known = broadcast(_Question(question, example[:0]))
    if isinstance(X, list):
        return [submit(_ask, part, known) for part in X]
    if hasattr(X, "to_dask_array"):
        meta = _framed(example[:0], X._meta_nonempty.iloc[:0])
        return X.map_partitions(_ask_frame, known, meta=meta)
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    shapes: dict[str, Any] = {"drop_axis": 1} if example.ndim == 1 else {"chunks": (X.chunks[0], *example.shape[1:])}
    if example.ndim == 3:
        shapes["new_axis"] = 2
    return X.map_blocks(_ask, known=known, dtype=example.dtype, meta=example[:0], **shapes)


class _Question:
    """A question as something to be known, and its answer about no rows."""

    def __init__(self, question: Callable[[Any], AnyArray], nothing: AnyArray) -> None:
        self._question, self._nothing = question, nothing

    def prepare(self) -> None:
        """Nothing has to be done before."""

    def ask(self, rows: Any) -> AnyArray:
        """The answer."""
        return self._question(rows) if len(rows) else self._nothing


def _ask(block: Any, known: _Known) -> AnyArray:
    answer: AnyArray = known.prepared().ask(block)
    return answer


def _ask_frame(frame: Any, known: _Known) -> Any:
    return _framed(known.prepared().ask(frame), frame)


def _framed(answer: AnyArray, like: Any) -> Any:
    """An array as a series or a frame with the index of another."""
    series = like.iloc[:, 0]
    if answer.ndim == 1:
        return type(series)(answer, index=like.index)
    return type(like)(answer.reshape(len(answer), int(np.prod(answer.shape[1:]))), index=like.index)
