"""Ray: the same bytes, whatever becomes of the nodes."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import campanile
import pytest

from .conftest import bytes_of

pytestmark = pytest.mark.ray
ray = pytest.importorskip("ray")


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes on the loopback address: a head, and one that may be killed."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.other = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def killer(cluster: Any, begun: Any) -> threading.Thread:
    """Kills the second node once `begun` holds."""

    def kill() -> None:
        while not begun():
            time.sleep(0.05)
        cluster.remove_node(cluster.other, allow_graceful=False)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def test_a_sweep_has_the_bytes_of_a_local_one_though_a_node_is_killed(cluster: Any, sweep_file: Path) -> None:
    sweep_file.write_text(sweep_file.read_text().replace("seeds = 2", "seeds = 40"))
    local = bytes_of(campanile.sweep(sweep_file, out="local").folder)
    runs = Path("ray/shard-1-of-1.runs")
    thread = killer(cluster, lambda: runs.exists() and runs.read_bytes().count(b"\n") > 40)
    swept = campanile.sweep(sweep_file, out="ray", ray=cluster.address)
    thread.join(60)
    assert not thread.is_alive(), "the node was killed while the sweep ran"
    assert bytes_of(swept.folder) == local


def test_a_sweep_goes_on_where_a_local_one_was_stopped(cluster: Any, sweep_file: Path) -> None:
    local = bytes_of(campanile.sweep(sweep_file, out="local").folder)
    whole = Path("local/shard-1-of-1.runs").read_text().splitlines(keepends=True)
    Path("ray").mkdir()
    Path("ray/shard-1-of-1.runs").write_text("".join(whole[:10]))
    assert bytes_of(campanile.sweep(sweep_file, out="ray", ray=cluster.address).folder) == local


def same_search(address: str, *arguments: Any, **options: Any) -> campanile.Checked:
    """The result of a search on the cluster, which is the local one's."""
    local = campanile.check(*arguments, **options)
    remote = campanile.check(*arguments, **options, ray=address)
    for checked in [local, remote]:
        del checked["seconds"], checked["ios_per_second_per_core"]
    assert json.dumps(local) == json.dumps(remote)
    found = [(checked.exit_code, checked.shortest, checked.history) for checked in [local, remote]]
    assert found[0] == found[1]
    return remote


def test_a_search_finds_what_a_local_one_finds(cluster: Any) -> None:
    assert same_search(cluster.address, seeds=12, seed=3).exit_code == 0


def test_errors_of_tasks_are_the_same_exceptions(cluster: Any) -> None:
    with pytest.raises(campanile.InputError, match="valid is pc-plain"):
        campanile.check("pc", ray=cluster.address)
    with pytest.raises(campanile.InputError):
        campanile.sweep("missing.toml", ray=cluster.address)
