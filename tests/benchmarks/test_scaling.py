import numpy as np
import pytest

pytest.importorskip("distributed")

from benchmarks.scaling import Costs, Job, Network, fitted, simulated

COSTS = Costs(start=0.01, task=2e-3, exponent=3e-9, product=2e-10, merged=5e-9, issue=0.0)
FREE = Network(bandwidth=np.inf, latency=0.0)


def seconds(job):
    """By hand, without a tree: all workers have the same number of partitions."""
    return COSTS.start + job.n_parts / job.n_workers * COSTS.of_part(job)


@pytest.mark.parametrize("n_workers", [1, 4, 16])
def test_partitions_are_shared_by_the_workers(n_workers):
    job = Job(10**6, 300, 16, n_workers)
    alone = Costs(COSTS.start, COSTS.task, COSTS.exponent, COSTS.product, merged=0.0, issue=0.0)
    merges = 2 * COSTS.task  # on the path to the root of a tree over 16 partitions
    assert seconds(job) + merges - 1e-12 <= simulated(job, alone, FREE) <= seconds(job) + 5 * COSTS.task + 1e-12


def test_a_slow_scheduler_and_a_slow_network_bound_what_workers_can_do():
    job = Job(10**6, 300, 256, 256)
    slow = Costs(0.0, COSTS.task, COSTS.exponent, COSTS.product, COSTS.merged, issue=0.1)
    assert simulated(job, slow, FREE) > 25.6
    assert simulated(job, COSTS, Network(bandwidth=1e6)) > 4 * 3 * 8 * 300**2 / 1e6  # levels, sums and bytes


def test_the_fit_finds_the_costs_that_made_the_times():
    jobs = [Job(n, m, p, w) for n in (10**5, 10**6) for m in (100, 400, 900) for p in (8, 64) for w in (1, 2)]
    merges = [COSTS.merged * job.n_parts * job.m**2 / job.n_workers for job in jobs]
    found = fitted(jobs, [seconds(job) + merge for job, merge in zip(jobs, merges, strict=True)], issue=0.0)
    for name, cost in vars(COSTS).items():
        assert getattr(found, name) == pytest.approx(cost, rel=1e-6)
