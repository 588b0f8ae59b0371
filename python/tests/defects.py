"""A search on Ray finds what a local one finds, in a module with known defects: scripts/python --all builds it from mutants/."""

from __future__ import annotations

from typing import Any

import campanile
import pytest

from .test_ray import cluster as cluster
from .test_ray import same_search


@pytest.mark.parametrize("scenario, found", [("pc-posted", campanile.Found), ("moderation", campanile.CrashFound)])
def test_the_first_failure_ends_the_search_and_is_shortened(cluster: Any, scenario: str, found: Any) -> None:
    checked = same_search(cluster.address, scenario, seeds=100_000, seed=1)
    assert checked["histories"] < 1_000, "the failure stopped all"
    assert checked.shortest is not None and checked.shortest.startswith(f"campanile check --scenario {scenario} --replay ")
    with pytest.raises(found) as raised:
        checked.raise_found()
    assert checked.shortest in str(raised.value)
