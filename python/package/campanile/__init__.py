"""Interrupt delivery on a simulated server.

The functions are the commands of `campanile`: each takes the command's options as keywords, and returns the command's
JSON as a dictionary with tables, ``to_pandas()`` and ``to_arrow()``.

>>> import campanile
>>> result = campanile.run("emr-4-drives", delivery=["remapped", "posted"], set={"duration": "2 ms"})
>>> result.mean("posted", "iops") > result.mean("remapped", "iops")
True

What is wrong is an exception with the command's message: :class:`InputError` (exit code 2 of the command) or
:class:`RunError` (1). A wrong type is a :class:`TypeError`, Ctrl-C a :class:`KeyboardInterrupt`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Literal, TypeVar

from . import _native, _ray
from ._arguments import Arguments, Number, Pairs, Path, Words, key_values
from ._native import Error, InputError, RunError, __version__
from ._results import Advice, Checked, CorrectnessFound, CrashFound, Found, Imported, LivenessFound, Result, Run, Swept

__all__ = [
    "Advice",
    "Checked",
    "CorrectnessFound",
    "CrashFound",
    "Error",
    "Found",
    "Imported",
    "InputError",
    "InputWarning",
    "LivenessFound",
    "Result",
    "Run",
    "RunError",
    "Swept",
    "__version__",
    "advise",
    "check",
    "import_server",
    "run",
    "sweep",
]


class InputWarning(UserWarning):
    """A reader of the result needs to know this of its input: an option that is not modelled, a span that was cut."""


_R = TypeVar("_R", bound=Result)


def _warned(result: _R) -> _R:
    for text in result.get("warnings", []):
        warnings.warn(text, InputWarning, stacklevel=3)
    return result


def run(
    input: Path,
    *,
    platform: Path | None = None,
    delivery: Words | None = None,
    set: Pairs | None = None,
    define: Pairs | None = None,
    seeds: int | None = None,
    html: Path | None = None,
    fio_json: Path | None = None,
    fio_logs: Path | None = None,
    trace: Path | None = None,
) -> Run:
    """Run an experiment.

    :param input: a scenario.toml, a job.fio, or the name of a built-in scenario.
    :param platform: emr, spr, optane, … or a platform file.
    :param delivery: the variants to compare.
    :param set: constants and options by their keys: ``{"job.iodepth": 8, "duration": "5 ms"}``.
    :param define: variables of job files.
    :param seeds: run with seeds 1 to N; the figures are means with their 95 % confidence.
    :param html: a page to write; ``fio_json``, ``fio_logs``, ``trace``: as the command's options.
    """
    line = Arguments("run").input("input", input).path("platform", platform).words_of("delivery", delivery)
    line.pairs("set", set).pairs("define", define).number("seeds", seeds)
    line.path("html", html).path("fio-json", fio_json).path("fio-logs", fio_logs).path("trace", trace)
    return _warned(Run(_native.answer(line.line())))


def sweep(
    file: Path,
    *,
    out: Path | None = None,
    shard: str | None = None,
    jobs: int | None = None,
    ray: str | None = None,
) -> Swept:
    """Carry out a sweep, and write its table, page and manifest into a folder. A folder with finished runs goes on.

    :param file: the sweep.toml.
    :param out: the folder; without it, the file's name with ``-results``.
    :param shard: a part of it, ``1/4`` to ``4/4``; ``campanile merge`` puts the parts together.
    :param jobs: threads; without it, one for each CPU.
    :param ray: the address of a Ray cluster (``auto``, ``local``, ``ray://host:10001``) that carries out the runs. The
        results have the same bytes as those of one machine.
    """
    line = Arguments("sweep").input("file", file).path("out", out).text("shard", shard).number("jobs", jobs)
    if ray is None:
        return Swept(_native.answer(line.line()))
    if shard is not None or jobs is not None:
        raise InputError("ray: the cluster divides the sweep; valid: ray without shard and jobs")
    return Swept(_ray.sweep(line.line(), ray))


def advise(
    input: Path,
    *,
    platform: Path | None = None,
    today: str | None = None,
    set: Pairs | None = None,
    define: Pairs | None = None,
    among: Words | None = None,
    cpu_budget: str | Number | None = None,
    kernel: str | None = None,
    device: bool | None = None,
    by: Literal["throughput", "tail", "cpu"] | None = None,
    seeds: int | None = None,
    points: int | None = None,
    html: Path | None = None,
) -> Advice:
    """Rank what would help a server: every remedy on a job, with its interval, its needs and how it is switched on.

    :param today: how interrupts are delivered today.
    :param among: the remedies to try; without it, all.
    :param cpu_budget: the CPUs that the job may keep busy: ``4``, or ``"50%"``.
    :param kernel: the server's kernel, as ``uname -r`` prints it.
    :param device: whether the devices have what only they can say, such as NVMe feature 08h.
    :param by: what places follow.
    :param points: points at which the platform's fitted constants are moved.

    The other parameters are those of :func:`run`.
    """
    line = Arguments("advise").input("input", input).path("platform", platform).text("today", today)
    line.pairs("set", set).pairs("define", define).words_of("among", among)
    line.value("cpu-budget", cpu_budget).text("kernel", kernel).yes_or_no("device", device)
    line.text("by", by).number("seeds", seeds).number("points", points).path("html", html)
    return _warned(Advice(_native.answer(line.line())))


def import_server(
    archive: Path | None = None,
    *,
    fio_json: Path | Iterable[Path] | None = None,
    job: Path | None = None,
    interrupts: tuple[Path, Path] | None = None,
    stat: tuple[Path, Path] | None = None,
    lscpu: Path | None = None,
    host: str | None = None,
    base: Path | None = None,
    out: Path = "my-server",
) -> Imported:
    """Make a platform of a measured server: fit what its figures decide, borrow the rest.

    :param archive: an archive of scripts/measure-server, or its folder. Without it:
    :param fio_json: what ``fio --output-format=json`` printed, one file or several of one job.
    :param job: the job file of those runs.
    :param interrupts: /proc/interrupts before and after a run; ``stat``: /proc/stat.
    :param lscpu: what lscpu printed.
    :param host: the host whose jobs are meant, in what a client of fio's printed of several.
    :param base: the platform that lends the constants that the data do not decide.
    :param out: the folder to write. Its name becomes the platform's.
    """
    line = Arguments("import")
    if archive is not None:
        line.input("archive", archive)
    line.paths("fio-json", fio_json).path("job", job).pair("interrupts", interrupts).pair("stat", stat)
    line.path("lscpu", lscpu).text("host", host).path("base", base).path("out", out)
    return Imported(_native.answer(line.line()), out)


def check(
    scenario: Words | None = None,
    *,
    seeds: int | None = None,
    minutes: Number | None = None,
    seed: int | None = None,
    faults: Words | None = None,
    without: Words | None = None,
    set: Pairs | None = None,
    shrink: bool = True,
    jobs: int | None = None,
    trace: Path | None = None,
    ray: str | None = None,
) -> Checked:
    """Search random histories of a simulated machine for lost, late, doubled or forged interrupts.

    A failure is a result and no exception: :meth:`Checked.raise_found` makes it one.

    :param scenario: the scenarios to search; without it, all.
    :param seeds: histories of each scenario; ``minutes``: as many as fit into this time.
    :param seed: the seed of the first history; without it, from the clock (``result["manifest"]`` has it).
    :param faults: the kinds of fault that may happen, or ``"none"``; ``without``: kinds of unrest to switch off.
    :param set: numbers of the machine or its load: ``{"cpus": 2}``.
    :param shrink: shorten a failure.
    :param trace: a file for the trace of a failure.
    :param ray: the address of a Ray cluster that searches. The result is that of one machine, but for ``seconds`` and
        ``ios_per_second_per_core``.
    """
    line = Arguments("check").words_of("scenario", scenario).number("seeds", seeds).number("minutes", minutes)
    line.number("seed", seed).words_of("faults", faults).words_of("without", without)
    line.words_of("set", key_values("set", set)).flag("no-shrink", not shrink)
    line.number("jobs", jobs).path("trace", trace)
    if ray is None:
        return Checked(*_native.Search(line.line()).run())
    if jobs is not None:
        raise InputError("ray: the cluster has its own workers; valid: ray without jobs")
    return _ray.check(line.line(), ray, None if minutes is None else float(minutes))
