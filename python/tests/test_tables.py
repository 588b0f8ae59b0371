"""Tables, types and notebooks' needs."""

from __future__ import annotations

import doctest
import pickle
import subprocess
from pathlib import Path

import campanile
import pytest

from .conftest import COMMAND


def test_a_run_as_tables() -> None:
    result = campanile.run("emr-low-qd1", delivery=["remapped", "posted"], set={"duration": "1 ms"}, seeds=2)
    frame = result.to_pandas()
    assert list(frame.columns) == ["delivery", "quantity", "unit", "mean", "ci95", "seeds"]
    iops = frame[(frame.delivery == "posted") & (frame.quantity == "iops")]["mean"].item()
    assert iops == result.mean("posted", "iops")
    assert result.to_arrow().num_rows == len(frame) == len(result.rows())
    again = pickle.loads(pickle.dumps(result))
    assert type(again) is campanile.Run and again == result and again.json == result.json
    with pytest.raises(KeyError, match="iops"):
        result.mean("posted", "nonsense")


def test_a_sweep_as_tables(sweep_file: Path) -> None:
    swept = campanile.sweep(sweep_file)
    assert swept.folder == Path("sweep-results") and swept.page.exists() and swept.manifest.exists()
    frame = swept.to_pandas()
    assert len(swept.rows()) == swept.to_arrow().num_rows == len(frame)
    iops = frame[frame.quantity == "iops"]
    assert set(iops["fabric.remap_service [ns]"]) == {20.0, 60.0} and (iops["value"] > 0).all()
    assert frame["error"].notna().any(), "a depth of 0 is a row with its error"


def test_an_option_that_is_not_modelled_is_a_warning() -> None:
    Path("job.fio").write_text("[job]\nrw=randread\niodepth=4\nfilename=/dev/nvme0n1\nruntime=100\ntime_based\ncpumask=1\n")
    with pytest.warns(campanile.InputWarning) as warned:
        result = campanile.run("job.fio", set={"duration": "1 ms"})
    assert [str(one.message) for one in warned] == result["warnings"]


def test_the_command_is_in_the_wheel() -> None:
    version = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True).stdout
    assert version == f"campanile {campanile.__version__}\n"


def test_the_examples_of_the_documentation_hold() -> None:
    found = doctest.testmod(campanile)
    assert found.attempted > 0 and found.failed == 0
