"""The functions' results have the bytes of the command's."""

from __future__ import annotations

import json
from pathlib import Path

import campanile

from .conftest import ROOT, bytes_of, command


def test_a_run() -> None:
    command("run", "emr-low-qd1", "--delivery", "remapped,posted", "--set", "duration=1 ms", "--seeds", "2", "--json", "a")
    result = campanile.run("emr-low-qd1", delivery=["remapped", "posted"], set={"duration": "1 ms"}, seeds=2)
    assert result.json.encode() == Path("a").read_bytes()
    assert result == json.loads(result.json)
    result.save("b")
    assert "the same" in command("rerun", "b")


def test_a_run_with_a_page_and_a_trace() -> None:
    options = ["run", "emr-low-qd1", "--delivery", "posted", "--set", "duration=1ms"]
    command(*options, "--json", "a", "--html", "a.html", "--trace", "a.trace")
    result = campanile.run("emr-low-qd1", delivery="posted", set=["duration=1ms"], html="b.html", trace="b.trace")
    assert result.json.encode() == Path("a").read_bytes()
    for ending in ["html", "trace"]:
        assert Path(f"b.{ending}").read_bytes() == Path(f"a.{ending}").read_bytes()


def test_a_sweep_and_its_shards(sweep_file: Path) -> None:
    command("sweep", "sweep.toml", "--out", "a")
    swept = campanile.sweep(sweep_file, out="b", jobs=1)
    assert bytes_of(Path("a")) == bytes_of(swept.folder)
    for shard in ["1/2", "2/2"]:
        campanile.sweep(sweep_file, out="c", shard=shard)
    command("merge", "c")
    assert bytes_of(Path("a")) == bytes_of(Path("c"))


def test_advice() -> None:
    options = ["--set", "duration=1 ms", "--among", "posted,rq_affinity", "--seeds", "1", "--points", "0"]
    command("advise", "emr-low-qd1", *options, "--json", "a")
    advice = campanile.advise(
        "emr-low-qd1", set={"duration": "1 ms"}, among=["posted", "rq_affinity"], seeds=1, points=0
    )
    assert advice.json.encode() == Path("a").read_bytes()
    assert isinstance(advice.rows(), list) and advice["today"]["delivery"] == "remapped"


def test_a_search() -> None:
    options = ["--scenario", "pc-plain,gicv3", "--seeds", "4", "--seed", "7", "--faults", "none"]
    command("check", *options, "--json", "a")
    checked = campanile.check(["pc-plain", "gicv3"], seeds=4, seed=7, faults="none")
    theirs, ours = json.loads(Path("a").read_text()), dict(checked)
    for measured in ["seconds", "ios_per_second_per_core"]:
        assert theirs.pop(measured) > 0 and ours.pop(measured) > 0
    assert theirs == ours and checked.exit_code == 0 and checked["histories"] == 8
    checked.raise_found()


def test_an_import() -> None:
    archives = sorted((ROOT / "import").rglob("*.tar.gz")) + sorted((ROOT / "lab/tests").rglob("*.tar.gz"))
    fio = {
        "fio version": "fio-3.33",
        "global options": {"ioengine": "libaio", "direct": "1", "bs": "4k"},
        "jobs": [
            {
                "jobname": "one",
                "job options": {"rw": "randread", "iodepth": "1", "filename": "/dev/nvme0n1", "runtime": "10"},
                "read": {
                    "io_bytes": 409600000, "total_ios": 100000, "iops": 10000.0, "runtime": 10000,
                    "clat_ns": {"mean": 95000.0, "N": 100000, "percentile": {"99.000000": 120000}},
                },
                "usr_cpu": 2.0, "sys_cpu": 5.0, "job_runtime": 10000,
            }
        ],
    }
    Path("fio.json").write_text(json.dumps(fio))
    given = ["import", str(archives[0])] if archives else ["import", "--fio-json", "fio.json"]
    command(*given, "--out", "a", "--json", "a.json")
    theirs = Path("a/a.toml").read_bytes()
    Path("a").rename("b")
    ours = campanile.import_server(*given[1:2], out="a") if archives else campanile.import_server(fio_json="fio.json", out="a")
    assert ours.json.encode() == Path("a.json").read_bytes()
    assert ours.platform.read_bytes() == theirs
    assert ours.rows()[0]["measured"] > 0
