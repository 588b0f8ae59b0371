"""Sweeps and searches on a Ray cluster: which task runs where, and again after a node is lost, is Ray's matter.

A task carries the contents of the sweep's files, so a node needs this package and nothing else. Nothing of a result
depends on the node that made it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _native
from ._results import Checked

RETRIES = 20
"""How often Ray runs a task again whose node or process was lost."""
TASKS_A_CPU = 64
"""Tasks of a sweep for each CPU, if it has so many runs: few enough to cost nothing, so many that the last ones end together."""
HISTORIES_MAX = 64
"""Histories of a task: about a second, which is lost with its node."""


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Ray, connected. A connection that the program has already is used, and stays."""
    if not isinstance(address, str):
        raise TypeError(f"ray: the address of a cluster, `auto` or `local`, not {type(address).__name__}")
    import ray
    import ray.exceptions

    is_ours = not ray.is_initialized()
    if is_ours:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _native.RunError(f"ray: {address}: {error}") from error
    try:
        yield ray
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, _native.Error):
            raise error.cause from None
        raise _native.RunError(f"ray: {error}") from error
    except ray.exceptions.RayError as error:
        raise _native.RunError(f"ray: {error}") from error
    finally:
        if is_ours:
            ray.shutdown()


def _cpus(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _sweep_part(
    inputs: tuple[str, str, dict[str, bytes], dict[str, str]], runs: list[int]
) -> str:
    return _native.sweep_part(*inputs, runs)


def _check_part(arguments: list[str], start: int, count: int) -> str:
    return _native.Search(arguments).part(start, count)


def sweep(arguments: list[str], address: str) -> str:
    """Carry out a sweep, and return its folder. What has come back is kept at once, as by a local sweep."""
    remote = _native.Sweep(arguments)
    with _cluster(address) as ray:
        pending, tasks = remote.pending(), TASKS_A_CPU * _cpus(ray)
        if len(pending) < tasks:
            pending = [[run] for runs in pending for run in runs]
        step = max(1, len(pending) // tasks)
        groups = (pending[at : at + step] for at in range(0, len(pending), step))
        part = ray.remote(num_cpus=1, max_retries=RETRIES)(_sweep_part)
        inputs = ray.put(remote.inputs())
        waiting = [part.remote(inputs, [run for runs in group for run in runs]) for group in groups]
        try:
            while waiting:
                done, waiting = ray.wait(waiting)
                for lines in ray.get(done):
                    remote.keep(lines)
        except BaseException:
            _cancel(ray, waiting)
            raise
    return remote.finish()


def check(arguments: list[str], address: str, minutes: float | None) -> Checked:
    """Search for lost interrupts. The first failure, by the histories' numbers, ends the search, and is shortened here."""
    search, began = _native.Search(arguments), time.monotonic()
    seeded = arguments if "--seed" in arguments else [*arguments, "--seed", str(search.first_seed())]
    with _cluster(address) as ray:
        cpus, histories = _cpus(ray), search.histories()
        step = HISTORIES_MAX // 4
        if histories is not None:
            step = max(1, min(HISTORIES_MAX, math.ceil(histories / (16 * cpus))))
        part = ray.remote(num_cpus=1, max_retries=RETRIES)(_check_part)
        parts: dict[int, str] = {}
        waiting: dict[Any, int] = {}
        start, end = 0, math.inf if histories is None else histories
        try:
            while True:
                late = minutes is not None and time.monotonic() - began >= 60 * minutes
                while start < end and len(waiting) < 4 * cpus and not late:
                    waiting[part.remote(seeded, start, int(min(step, end - start)))] = start
                    start += step
                if not waiting:
                    break
                done, _ = ray.wait(list(waiting))
                at, text = waiting.pop(done[0]), ray.get(done[0])
                parts[at] = text
                if '"failed":null' not in text:
                    # Histories behind this part do not count; those before it may hold an earlier failure.
                    end = min(end, at)
                    _cancel(ray, [task for task, first in waiting.items() if first > at])
                    waiting = {task: first for task, first in waiting.items() if first <= at}
        except BaseException:
            _cancel(ray, list(waiting))
            raise
    ordered = [parts[at] for at in sorted(parts)]
    return Checked(*search.merge(ordered, time.monotonic() - began, cpus))


def _cancel(ray: Any, tasks: list[Any]) -> None:
    for task in tasks:
        ray.cancel(task)
