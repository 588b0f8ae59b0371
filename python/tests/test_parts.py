"""What a cluster does, without one: parts that were carried out apart make the same bytes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import campanile
import pytest
from campanile import _native

from .conftest import bytes_of


def test_parts_of_a_sweep_need_none_of_its_files(sweep_file: Path) -> None:
    local = bytes_of(campanile.sweep(sweep_file, out="local").folder)
    remote = _native.Sweep(["sweep", "sweep.toml", "--out", "remote"])
    inputs, pending = remote.inputs(), remote.pending()
    assert sorted(run for runs in pending for run in runs) == list(range(24))
    Path("elsewhere").mkdir()
    os.chdir("elsewhere")
    parts = [_native.sweep_part(*inputs, runs) for runs in pending]
    os.chdir("..")
    for lines in parts:
        remote.keep(lines)
    assert bytes_of(Path(remote.finish())) == local
    with pytest.raises(campanile.Error, match="has ended"):
        remote.pending()


def test_damaged_parts_and_other_programs_are_refused(sweep_file: Path) -> None:
    remote = _native.Sweep(["sweep", "sweep.toml", "--out", "remote"])
    file, identity, files, variables = remote.inputs()
    lines = _native.sweep_part(file, identity, files, variables, [0])
    assert lines.count("\n") == 1
    with pytest.raises(campanile.InputError, match="is no run of this sweep; valid: 0 to 23"):
        _native.sweep_part(file, identity, files, variables, [0, 10**18])
    with pytest.raises(campanile.InputError, match="damaged"):
        remote.keep(lines.replace("iops", "oops"))
    with pytest.raises(campanile.InputError, match="same version"):
        _native.sweep_part(file, "0" * 64, files, variables, [0])
    with pytest.raises(campanile.InputError, match="are missing"):
        remote.finish()


def test_parts_of_a_search_make_the_whole() -> None:
    arguments = ["check", "--seeds", "3", "--seed", "5"]
    search = _native.Search(arguments)
    histories = search.histories()
    assert histories == 30
    parts = [search.part(start, min(4, histories - start)) for start in range(0, histories, 4)]
    merged = json.loads(search.merge(parts, 1.0, 1)[0])
    whole = json.loads(search.run()[0])
    for result in [merged, whole]:
        del result["seconds"], result["ios_per_second_per_core"]
    assert merged == whole
