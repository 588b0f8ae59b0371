"""The results: plain dictionaries with tables."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._native import Error

if TYPE_CHECKING:
    import pandas
    import pyarrow


class Result(dict[str, Any]):
    """A command's JSON as a dictionary, its tables as rows."""

    json: str
    """The text that the command writes with ``--json``, to the byte."""

    def __init__(self, text: str) -> None:
        super().__init__(json.loads(text))
        self.json = text

    def rows(self) -> list[dict[str, Any]]:
        """The main table, a dictionary for each row."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """The main table as a DataFrame (needs pandas)."""
        import pandas

        return pandas.DataFrame(self.rows())

    def to_arrow(self) -> pyarrow.Table:
        """The main table as an Arrow table (needs pyarrow)."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.rows())

    def save(self, path: str | Path) -> None:
        """Write the JSON. ``campanile rerun PATH`` makes a run's again."""
        Path(path).write_text(self.json, encoding="utf-8")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.json,)


class Run(Result):
    """The measurements of an experiment. A row for each delivery and quantity that it has."""

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "delivery": summary["delivery"],
                "quantity": figure["id"],
                "unit": figure["unit"],
                "mean": figure["mean"],
                "ci95": figure.get("ci95"),
                "seeds": figure["seeds"],
            }
            for summary in self["summaries"]
            for figure in summary["figures"]
            if figure.get("mean") is not None
        ]

    def mean(self, delivery: str, quantity: str) -> float:
        """The mean of a quantity over the seeds."""
        found = {(row["delivery"], row["quantity"]): row["mean"] for row in self.rows()}
        if (delivery, quantity) not in found:
            valid = ", ".join(sorted({key[1] for key in found if key[0] == delivery} or {key[0] for key in found}))
            raise KeyError(f"{delivery}, {quantity}; valid: {valid}")
        return float(found[delivery, quantity])


class Advice(Result):
    """What would help. A row for each remedy that was ranked, best first."""

    def rows(self) -> list[dict[str, Any]]:
        rows = []
        for candidate in self["candidates"] + self["over_budget"]:
            row = {key: value for key, value in candidate.items() if not isinstance(value, (dict, list))}
            for name, change in candidate["changes"].items():
                for key, value in (change or {}).items():
                    row[f"{name}_{key}"] = value
            rows.append(row)
        return rows


class Imported(Result):
    """A platform of a measured server. A row for each measurement, with the platform's error."""

    folder: Path
    """The folder that was written."""

    def __init__(self, text: str, folder: str | os.PathLike[str]) -> None:
        super().__init__(text)
        self.folder = Path(folder)

    @property
    def platform(self) -> Path:
        """The platform file, for ``platform=`` of the other functions."""
        return self.folder / f"{self['name']}.toml"

    def rows(self) -> list[dict[str, Any]]:
        return list(self["rows"])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.json, self.folder)


class Found(Error):
    """``campanile check`` found a failure. Raised only by :meth:`Checked.raise_found`."""

    def __init__(self, text: str, checked: Checked) -> None:
        super().__init__(text)
        self.checked = checked


class CorrectnessFound(Found):
    """Something happened that must not (exit code 3 of the command)."""


class LivenessFound(Found):
    """Something that must come did not (exit code 4)."""


class CrashFound(Found):
    """The code under test panicked (exit code 5)."""


_FOUND = {3: CorrectnessFound, 4: LivenessFound, 5: CrashFound}


class Checked(Result):
    """What a search found. A row for each transition of each scenario, with how often it was seen."""

    exit_code: int
    """The command's: 0 nothing found, 3 correctness, 4 liveness, 5 crash."""
    shortest: str | None
    """The command line of the shortest history that fails."""
    history: str | None
    """That history, its failure and the state of the stack."""

    def __init__(self, text: str, exit_code: int, shortest: tuple[str, str] | None) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.shortest, self.history = shortest or (None, None)

    def raise_found(self) -> None:
        """Raise a :class:`Found` if a history failed."""
        if self.exit_code:
            failure = self["failures"][0]
            text = f"{failure['message']}\nreplay: {self.shortest or failure['replay']}"
            raise _FOUND[self.exit_code](text, self)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"scenario": scenario, "transition": transition, "times": times}
            for scenario, seen in self["coverage"].items()
            for transition, times in seen.items()
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        shortest = None if self.shortest is None else (self.shortest, self.history)
        return type(self), (self.json, self.exit_code, shortest)


class Swept:
    """A sweep's folder: its table, page and manifest."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.csv = self.folder / "results.csv"
        self.parquet = self.folder / "results.parquet"
        self.page = self.folder / "page.html"
        self.manifest = self.folder / "manifest.json"

    def rows(self) -> list[dict[str, str]]:
        """The table, a dictionary of texts for each row."""
        import csv

        with self.csv.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def to_arrow(self) -> pyarrow.Table:
        """The table as an Arrow table, with types (needs pyarrow)."""
        import pyarrow.parquet

        return pyarrow.parquet.read_table(self.parquet)

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a DataFrame, with types (needs pandas and pyarrow)."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        return f"Swept({str(self.folder)!r})"
