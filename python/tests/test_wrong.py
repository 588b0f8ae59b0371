"""Bad input is an exception with the command's message, and the interpreter goes on."""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any, Callable

import campanile
import pytest

from .conftest import command

HUGE = 10**400


@pytest.mark.parametrize(
    "arguments, call",
    [
        (["run", "no-such"], lambda: campanile.run("no-such")),
        (["run", "missing.fio"], lambda: campanile.run("missing.fio")),
        (["run", "dürr.tøml"], lambda: campanile.run("dürr.tøml")),
        (["run", "emr-low-qd1", "--set", "fabric.dispach=1ns"], lambda: campanile.run("emr-low-qd1", set={"fabric.dispach": "1ns"})),
        (["run", "emr-low-qd1", "--set", "cpus=-4"], lambda: campanile.run("emr-low-qd1", set={"cpus": -4})),
        (["run", "emr-low-qd1", "--seeds", "0"], lambda: campanile.run("emr-low-qd1", seeds=0)),
        (["run", "emr-low-qd1", "--seeds", "99999999999"], lambda: campanile.run("emr-low-qd1", seeds=99999999999)),
        (["run", "emr-low-qd1", "--html", "no/such/folder"], lambda: campanile.run("emr-low-qd1", html="no/such/folder")),
        (["sweep", "missing.toml"], lambda: campanile.sweep("missing.toml")),
        (["sweep", "missing.toml", "--shard", "5/4"], lambda: campanile.sweep("missing.toml", shard="5/4")),
        (["advise", "emr-low-qd1", "--among", "prayer"], lambda: campanile.advise("emr-low-qd1", among="prayer")),
        (["import", "missing.tar.gz", "--out", "x"], lambda: campanile.import_server("missing.tar.gz", out="x")),
        (["import", "--out", "x"], lambda: campanile.import_server(out="x")),
        (["check", "--scenario", "pc"], lambda: campanile.check("pc")),
        (["check", "--seeds", "1", "--minutes", "nan"], lambda: campanile.check(seeds=1, minutes=float("nan"))),
    ],
)
def test_the_message_is_the_commands(arguments: list[str], call: Callable[[], object]) -> None:
    printed = command(*arguments, code=2)
    with pytest.raises(campanile.InputError) as raised:
        call()
    text = str(raised.value)
    assert text and text in printed
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is campanile.InputError and str(again) == text


@pytest.mark.parametrize(
    "call",
    [
        lambda: campanile.run(3),  # type: ignore[arg-type]
        lambda: campanile.run(None),  # type: ignore[arg-type]
        lambda: campanile.run(b"emr-4-drives"),  # type: ignore[arg-type]
        lambda: campanile.run("emr-low-qd1", seeds="many"),  # type: ignore[arg-type]
        lambda: campanile.run("emr-low-qd1", delivery=[1]),  # type: ignore[list-item]
        lambda: campanile.run("emr-low-qd1", set="a=1"),
        lambda: campanile.run("emr-low-qd1", set={"a": None}),  # type: ignore[dict-item]
        lambda: campanile.sweep("s.toml", ray=7),  # type: ignore[arg-type]
        lambda: campanile.advise("emr-low-qd1", device="yes"),  # type: ignore[arg-type]
        lambda: campanile.import_server(fio_json="f", stat="before"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_is_a_type_error(call: Callable[[], object], sweep_file: Path) -> None:
    sweep_file.rename("s.toml")
    with pytest.raises(TypeError):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: campanile.run("-"),
        lambda: campanile.run("--help"),
        lambda: campanile.run("a\0b.fio"),
        lambda: campanile.run("\udcff.fio"),
        lambda: campanile.run("/"),
        lambda: campanile.run("emr-low-qd1", platform="--help"),
        lambda: campanile.run("emr-low-qd1", html="-"),
        lambda: campanile.run("emr-low-qd1", seeds=HUGE),
        lambda: campanile.run("emr-low-qd1", set={"cpus": HUGE}),
        lambda: campanile.run("emr-low-qd1", set={"duration": float("inf")}),
        lambda: campanile.check(seeds=-1),
        lambda: campanile.check("pc-plain", set={"cpus": 99}),
        lambda: campanile.check(seed=2**64),
        lambda: campanile.check("pc-plain", ray="local", jobs=2),
        lambda: campanile.advise("emr-low-qd1", cpu_budget=-1),
        lambda: campanile.import_server("/dev/null"),
    ],
)
def test_other_bad_input_is_an_input_error(call: Callable[[], object]) -> None:
    with pytest.raises(campanile.InputError):
        call()


def test_a_host_is_named_where_several_ran_the_jobs() -> None:
    job = {"jobname": "a", "job options": {"rw": "read", "filename": "/dev/nvme0n1"}, "read": {"iops": 100, "total_ios": 100}}
    clients = [{**job, "hostname": host} for host in ("n1", "n2")]
    Path("fio.json").write_text(json.dumps({"client_stats": clients}))
    for given, host in [([], None), (["--host", "n3"], "n3")]:
        printed = command("import", "--fio-json", "fio.json", "--out", "x", *given, code=2)
        with pytest.raises(campanile.InputError, match="--host with one of n1, n2") as raised:
            campanile.import_server(fio_json="fio.json", host=host, out="x")
        assert str(raised.value) in printed


def test_files_of_noise_are_input_errors() -> None:
    for name in ["x.fio", "x.toml", "x.tar.gz"]:
        Path(name).write_bytes(bytes(range(256)) * 64)
        calls: list[Callable[[], Any]] = [
            lambda: campanile.run(name),
            lambda: campanile.sweep(name),
            lambda: campanile.import_server(name),
            lambda: campanile.run("emr-low-qd1", platform=f"./{name}"),
        ]
        for call in calls:
            with pytest.raises(campanile.InputError):
                call()


def interrupted(call: Callable[[], object]) -> float:
    """Seconds from Ctrl-C to its exception."""
    sent = []

    def interrupt() -> None:
        time.sleep(1)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        call()
    return time.monotonic() - sent[0]


def test_ctrl_c_ends_a_run_a_sweep_and_a_search(sweep_file: Path) -> None:
    sweep_file.write_text(sweep_file.read_text().replace("seeds = 2", "seeds = 2000"))
    assert interrupted(lambda: campanile.run("emr-4-drives", set={"duration": "100 ms"}, seeds=100)) < 20
    assert interrupted(lambda: campanile.sweep(sweep_file, out="s")) < 20
    assert interrupted(lambda: campanile.check(minutes=10)) < 20
    # The interpreter and the library go on; what was done is kept.
    assert Path("s/shard-1-of-1.runs").stat().st_size > 1000
    assert campanile.run("emr-low-qd1", set={"duration": "1 ms"}).mean("remapped", "iops") > 0


def test_other_threads_go_on_meanwhile() -> None:
    turns = 0
    done = threading.Event()

    def work() -> None:
        campanile.run("emr-4-drives", delivery="posted", set={"duration": "5 ms"})
        done.set()

    threading.Thread(target=work).start()
    while not done.wait(0.001):
        turns += 1
    assert turns > 10
