"""Peak memory of a task beyond what stood before it, measured in a process of its own."""

import multiprocessing
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil


def peak_megabytes(prepare: Callable[[], Any], task: Callable[[Any], object]) -> float:
    """Run ``task(prepare())`` in a new process; return the peak of its resident memory during the task, less before."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_watch, args=(prepare, task, sender))
    process.start()
    result = receiver.recv()
    process.join()
    return float(result)


def _watch(prepare: Callable[[], Any], task: Callable[[Any], object], sender: Any) -> None:
    subject = prepare()
    process, done = psutil.Process(), threading.Event()
    before = peak = process.memory_info().rss

    def sample() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, process.memory_info().rss)
            time.sleep(0.002)

    watcher = threading.Thread(target=sample)
    watcher.start()
    task(subject)
    done.set()
    watcher.join()
    sender.send((peak - before) / 2**20)
