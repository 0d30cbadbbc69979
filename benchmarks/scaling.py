"""What a fit on a cluster costs: measured here, fitted, and carried to clusters that are not here.

`python -m benchmarks.scaling` measures and writes docs/scaling.md; `--small` takes about a minute, for a try.
"""

import argparse
import heapq
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, wait
from scipy.optimize import nnls

import mercer
from mercer.engine import ArrayTable, Features, SourceColumn, SourceRows, as_source, normal_statistics
from mercer.engine.executors.dask import WIDTH, Dask, gather, submit
from mercer.kernels import Gaussian
from mercer.reports.table import format_table

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
D = 20  # features
NUMBER = 8  # bytes


@dataclass(frozen=True)
class Job:
    """A pass of a Nyström fit."""

    n_rows: int
    m: int  # basis points
    n_parts: int
    n_workers: int  # of one thread each


@dataclass(frozen=True)
class Costs:
    """Seconds of the steps, on one core."""

    start: float  # of a pass: sending it, and the way back
    task: float  # of a task on its worker, whatever it does
    exponent: float  # of a row, times m·d: the product in the exponents, and their exponentials
    product: float  # of a row, times m²: the sums
    merged: float  # of a sum that is merged, times m²
    issue: float  # of a task in the scheduler: one after the other, however many workers there are

    def of_part(self, job: Job) -> float:
        """Of a partition."""
        rows = job.n_rows / job.n_parts
        return self.task + rows * (self.exponent * job.m * D + self.product * job.m**2)


@dataclass(frozen=True)
class Network:
    """An assumption: ten gigabits a second into each worker, half a millisecond to answer."""

    bandwidth: float = 1.25e9
    latency: float = 5e-4

    def seconds(self, n_bytes: float) -> float:
        """Until so much has come from another worker."""
        return self.latency + n_bytes / self.bandwidth


# ---------------------------------------------------------------------------------------------------- measured


def measure(job: Job, client: Client, rounds: int) -> float:
    """Least seconds of a pass over rows that the workers hold."""
    chunks = (-(-job.n_rows // job.n_parts), D)
    X = da.random.default_rng(0).normal(size=(job.n_rows, D), chunks=chunks).persist()
    y = X[:, 0].persist()
    wait([X, y])
    source = as_source(X, y)
    table = ArrayTable(SourceRows(source), SourceColumn(source, "labels"))
    features = Features(Gaussian(5.0), np.random.default_rng(1).normal(size=(job.m, D)))
    return _least(lambda: normal_statistics(table, features, executor=Dask(client)), rounds)


def seconds_to_issue(client: Client, number: int) -> float:
    """Seconds for each of many tasks that do nothing."""
    tasks = [submit(_nothing, i) for i in range(number)]
    return _least(lambda: gather(tasks, client), 2) / number


def _nothing(number: int) -> int:
    return number


def _least(run: Any, rounds: int) -> float:
    seconds = []
    for _ in range(rounds + 1):  # the first compiles
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def fitted(jobs: list[Job], seconds: list[float], issue: float) -> Costs:
    """Least squares of relative errors, no cost below zero."""
    A = np.array([
        [
            1.0,
            job.n_parts / job.n_workers,
            job.n_rows * job.m * D / job.n_workers,
            job.n_rows * job.m**2 / job.n_workers,
            job.n_parts * job.m**2 / job.n_workers,
        ]
        for job in jobs
    ])  # fmt: skip
    scale = np.abs(A).max(axis=0)  # so that the solver sees numbers of one size
    y = np.asarray(seconds)
    found, _ = nnls(A / scale / y[:, np.newaxis], np.ones(len(jobs)))
    return Costs(*(found / scale).tolist(), issue=issue)


# --------------------------------------------------------------------------------------------------- simulated


def simulated(job: Job, costs: Costs, network: Network) -> float:
    """Seconds of a pass: tasks leave the scheduler one by one, go to the first free worker, and are merged by a tree.

    A merge runs where the first of its sums is, which receives the others one after the other.
    """
    state = NUMBER * (job.m + 2) ** 2
    free = [(costs.start, worker) for worker in range(job.n_workers)]
    part, sums = costs.of_part(job), []
    for number in range(job.n_parts):
        at, worker = heapq.heappop(free)
        end = max(at, costs.start + (number + 1) * costs.issue) + part
        heapq.heappush(free, (end, worker))
        sums.append((end, worker))
    busy = dict.fromkeys(range(job.n_workers), 0.0)
    transfer = network.seconds(state)
    while len(sums) > 1:
        sums = [_merged(sums[i : i + WIDTH], busy, job, costs, transfer) for i in range(0, len(sums), WIDTH)]
    return sums[0][0] + transfer


def _merged(group: list[Any], busy: dict[int, float], job: Job, costs: Costs, transfer: float) -> tuple[float, int]:
    if len(group) == 1:
        return group[0]
    where = group[0][1]
    received = transfer * sum(worker != where for _, worker in group)
    start = max(busy[where], *(end for end, _ in group))
    busy[where] = start + received + costs.issue + costs.task + len(group) * costs.merged * job.m**2
    return busy[where], where


# ------------------------------------------------------------------------------------------------------- report

HEAD = """# What a cluster costs, and where it stops helping

Written by `python -m benchmarks.scaling`, which measures on the machine that it runs on, fits a cost model, and
simulates clusters that are not there. A pass sums the statistics of a Nyström fit; a fit is one pass, a sample of rows
(the basis, a length scale, calibration: some thousand rows) and a system of size m on the client. Conjugate gradients,
support vectors and pseudo-inputs are more passes.

Let n be the rows, d the features, m the basis points, P the partitions, W the workers (one thread each), c the costs
below, and s = 8(m + 2)² bytes the size of a sum:

```
partition   c_task + n/P (c_exponent m d + c_product m²)      P of them, on W workers
scheduler   c_issue for each task                             one after the other: P (1 + 1/3) c_issue
tree        ceil(log4 P) levels; a merge takes up to 4 c_merged m² and receives up to 3 s bytes
pass        8 m d + s bytes, once to each worker
```

What moves does not depend on n: rows stay where they are. Sums are merged four at a time.
"""

TAIL = """
The simulation assumes a network of 10 Gbit/s and 0.5 ms between any two workers, rows in the workers' memory, and no
lost worker (each costs what it held: its rows are read again, its sums computed again). Reading rows from files is not
in it: at 1 GB/s for each machine, a billion rows of {d} features and a target ({gigabytes:.0f} GB) take
{ten:.0f} s more on 10 machines and {hundred:.0f} s on 100, in each pass if they are not persisted.

Two things end the scaling. The scheduler hands out {rate:,.0f} tasks a second, so with W workers a partition should
take W/{rate:,.0f} seconds or more: a few large partitions for each worker, not many small ones. A sum at m = 2000 is
32 MB, of which each level of the tree brings up to three to one machine.
"""


def report(*, small: bool) -> str:
    """Measure with 1 and 2 workers, fit to two thirds, and predict all."""
    sizes = (20_000, 40_000) if small else (200_000, 400_000)
    points, parts, rounds = ((50, 150), (4, 16), 1) if small else ((200, 500, 1000), (16, 64), 3)
    jobs, seconds = [], []
    for n_workers in (1, 2):
        with mercer.local_cluster(n_workers) as client:
            issue = seconds_to_issue(client, 200 if small else 2000)
            for n, m, n_parts in [(n, m, p) for n in sizes for m in points for p in parts]:
                jobs.append(Job(n, m, n_parts, n_workers))
                seconds.append(measure(jobs[-1], client, rounds))
    used = [i for i in range(len(jobs)) if i % 3 != 1]
    costs = fitted([jobs[i] for i in used], [seconds[i] for i in used], issue)
    here = Network(bandwidth=2e9, latency=5e-4)  # between processes of one machine
    rows: list[list[Any]] = []
    for i, (job, took) in enumerate(zip(jobs, seconds, strict=True)):
        foretold = simulated(job, costs, here)
        use = "to fit" if i in used else "to test"
        rows.append([job.n_workers, job.n_rows, job.m, job.n_parts, took, foretold, foretold / took, use])
    header = ["workers", "rows", "m", "partitions", "measured s", "predicted s", "ratio", "used"]
    return "\n".join([HEAD, _costs(costs), "", _fenced(header, rows), "", _far(costs), _tail(costs)])


def _costs(costs: Costs) -> str:
    names = ("c_start", "c_task", "c_exponent", "c_product", "c_merged", "c_issue")
    return "Costs in seconds: " + ", ".join(f"{n} {c:.2g}" for n, c in zip(names, astuple(costs), strict=True)) + "."


def _far(costs: Costs) -> str:
    """A billion rows on 10 and 100 machines of 16 cores, and the reduction up to 256 workers."""
    rows = []
    for m in (500, 2000):
        one = simulated(Job(10**9, m, 160, 1), costs, Network())
        for machines in (10, 100):
            for each in (1, 4, 16):
                workers = 16 * machines
                took = simulated(Job(10**9, m, each * workers, workers), costs, Network())
                rows.append([m, machines, each * workers, took, f"{one / workers / took:.0%}"])
    billion = _fenced(["m", "machines", "partitions", "seconds", "efficiency"], rows)
    widths, small = (1, 2, 4, 8, 16, 32, 64, 128, 256), 10**7
    times = {w: simulated(Job(small, 500, 4 * w, w), costs, Network()) for w in widths}
    reach = _fenced(
        ["workers", "partitions", "seconds", "efficiency"],
        [[w, 4 * w, t, f"{times[1] / w / t:.0%}"] for w, t in times.items()],
    )
    return (
        f"## A billion rows\n\nd = {D}, 16 cores in each machine, simulated with these costs:\n\n{billion}\n\n"
        f"## The reduction up to 256 workers\n\n10 million rows, m = 500, simulated:\n\n{reach}\n"
    )


def _tail(costs: Costs) -> str:
    gigabytes = 10**9 * (D + 1) * NUMBER / 1e9
    return TAIL.format(
        d=D, gigabytes=gigabytes, ten=gigabytes / 10, hundred=gigabytes / 100, rate=1 / max(costs.issue, 1e-9)
    )


def _fenced(header: list[str], rows: list[list[Any]]) -> str:
    return f"```\n{format_table(header, rows)}\n```"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="print a page made of small measurements")
    if parser.parse_args().small:
        print(report(small=True))
    else:
        PAGE.write_text(report(small=False), encoding="utf-8")
