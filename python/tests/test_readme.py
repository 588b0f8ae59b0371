"""What the README shows."""

from __future__ import annotations

import shlex
import subprocess
import sys

from .conftest import ROOT


def test_the_line_of_the_tour() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("python -c ")]
    done = subprocess.run([sys.executable, *shlex.split(line, comments=True)[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "iops" in done.stdout
