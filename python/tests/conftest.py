"""What the tests share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.executable).with_name("campanile")

SWEEP = """\
about = "Depth against the cost of remapping"
scenario = "emr-low-qd1"
deliveries = ["remapped", "posted"]
seeds = 2

[set]
duration = "1 ms"

[grid]
"job.iodepth" = [1, 4, 0]
"fabric.remap_service" = ["20 ns", "60 ns"]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sweep_file(folder: Path) -> Path:
    path = Path("sweep.toml")
    path.write_text(SWEEP)
    return path


def command(*arguments: str, code: int = 0) -> str:
    """What the wheel's command prints on standard error, and on standard output before it."""
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def bytes_of(folder: Path) -> dict[str, bytes]:
    """The files of a sweep's result."""
    names = ["results.csv", "results.parquet", "page.html", "manifest.json"]
    return {name: (folder / name).read_bytes() for name in names}
