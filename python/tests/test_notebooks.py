"""Every notebook runs from its first cell to its last."""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbclient
import pytest

from .conftest import ROOT

NOTEBOOKS = sorted((ROOT / "python/notebooks").glob("*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, folder: Path) -> None:
    notebook = jupytext.read(path)
    client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}})
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert outputs
    if "matplotlib" in path.read_text():
        assert any("image/png" in output.get("data", {}) for output in outputs)


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3
