"""From Python's arguments to the command line that the command would be given.

The command's own reader then judges the values, so its messages are these functions' messages too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Union

from ._native import InputError

Path = Union[str, "os.PathLike[str]"]
Number = Union[int, float]
Value = Union[str, Number]
Words = Union[str, Iterable[str]]
Pairs = Union[Mapping[str, Value], Iterable[str]]


class Arguments:
    """A command line that grows."""

    def __init__(self, command: str) -> None:
        self.words = [command]
        self._last: list[str] = []

    def input(self, name: str, value: Path) -> Arguments:
        """The command's input."""
        text = _path(name, value)
        if text == "-":
            raise InputError(f"{name}: `-` is standard input, which only the command reads; valid: a path or a name")
        if text.startswith("-"):
            # Behind `--` nothing is an option.
            self._last = ["--", text]
        else:
            self.words.append(text)
        return self

    def path(self, option: str, value: Path | None) -> Arguments:
        """An option that names a file or folder."""
        if value is not None:
            text = _path(option, value)
            if text == "-":
                raise InputError(f"--{option}: `-` is standard output, which only the command writes; valid: a path")
            self._add(option, text)
        return self

    def paths(self, option: str, values: Path | Iterable[Path] | None) -> Arguments:
        """An option that is given once for each file."""
        for value in [values] if isinstance(values, (str, os.PathLike)) else values or ():
            self.path(option, value)
        return self

    def pair(self, option: str, values: tuple[Path, Path] | None) -> Arguments:
        """An option with two files."""
        if values is not None:
            if isinstance(values, str) or len(list(values)) != 2:
                raise TypeError(f"{option}: two paths, before and after")
            self.words += [f"--{option}", *(_path(option, value) for value in values)]
        return self

    def text(self, option: str, value: str | None) -> Arguments:
        """An option that is a word."""
        if value is not None:
            self._add(option, _text(option, value))
        return self

    def number(self, option: str, value: Number | None) -> Arguments:
        """An option that is a number."""
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{option}: a number, not {type(value).__name__}")
            self._add(option, _number(value))
        return self

    def value(self, option: str, value: Value | None) -> Arguments:
        """An option that is a number or a word."""
        return self.text(option, value) if value is None or isinstance(value, str) else self.number(option, value)

    def yes_or_no(self, option: str, value: bool | None) -> Arguments:
        """An option that is `yes` or `no`."""
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"{option}: a bool, not {type(value).__name__}")
        return self.text(option, None if value is None else ("yes" if value else "no"))

    def words_of(self, option: str, values: Words | None) -> Arguments:
        """An option that is a list, separated by commas."""
        if values is not None:
            words = [values] if isinstance(values, str) else [_text(option, word) for word in values]
            if words:
                self._add(option, ",".join(words))
        return self

    def pairs(self, option: str, values: Pairs | None) -> Arguments:
        """An option that is given once for each `KEY=VALUE`."""
        for pair in key_values(option, values):
            self._add(option, pair)
        return self

    def flag(self, option: str, is_set: bool) -> Arguments:
        """An option without a value."""
        if is_set:
            self.words.append(f"--{option}")
        return self

    def line(self) -> list[str]:
        """The whole."""
        return self.words + self._last

    def _add(self, option: str, text: str) -> None:
        if text.startswith("-"):
            self.words.append(f"--{option}={text}")
        else:
            self.words += [f"--{option}", text]


def key_values(option: str, values: Pairs | None) -> list[str]:
    """`KEY=VALUE` for each pair."""
    if isinstance(values, str):
        raise TypeError(f"{option}: a mapping, or a list of `KEY=VALUE`, not one str")
    if isinstance(values, Mapping):
        return [f"{_text(option, key)}={_value(option, value)}" for key, value in values.items()]
    return [_text(option, value) for value in values or ()]


def _value(option: str, value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _number(value)
    return _text(option, value)


def _number(value: Number) -> str:
    # `str` refuses integers of more than 4300 digits; no option takes one of 40.
    if isinstance(value, int) and abs(value) >= 10**40:
        raise InputError(f"a number of {value.bit_length()} bits is beyond every option's; valid: below 2^64")
    return str(value)


def _text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: a str, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name}: {value!r} is no Unicode text: {error.reason}") from None
    return value


def _path(name: str, value: Path) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name}: a path, not {type(value).__name__}")
    return _text(name, os.fspath(value))
