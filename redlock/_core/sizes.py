"""Limits the size of an answer: looks at what a server announces, before a parser reserves memory for it.

A dozen bytes can announce an array of a billion values.  The parser reserves that memory at once, and while it frees
it, the whole process is stopped.  Beyond the limits below the connection is given up, and the vote says why.
"""

from __future__ import annotations

import re
from typing import Final

LINE: Final = 1 << 16  # bytes in one line: an error, a number, or the announcement of a size
BYTES: Final = 1 << 24  # bytes in all strings of one answer; INFO has some ten thousand
VALUES: Final = 100_000  # values in one answer

# The usual answers of scripts: flat, short and complete.  The pattern is exact, so nothing else can hide in a match.
_VALUE = rb"(?:[:+-].{0,300}|\$-1|\$40\r\n.{40})\r\n"
_FLAT = b"|".join(rb"\*%d\r\n(?:%s){%d}" % (size, _VALUE, size) for size in range(10))
_USUAL = re.compile(rb"(?:%s|%s)*+" % (_VALUE, _FLAT))

_NUMBER = re.compile(rb"-?[0-9]{1,19}")
_BULKS = b"$=!"
_PAIRS = b"%|"
_AGGREGATES = b"*~>" + _PAIRS


class TooMuch(ValueError):  # noqa: N818 - it is no error of ours
    """A server announces more than any answer that we ask for can have."""


class Sizes:
    """What was announced so far in the answer that is read.  The parser finds what is wrong with a value."""

    __slots__ = ("_bytes", "_line", "_skip", "_values")

    def __init__(self) -> None:
        self._line = b""  # the beginning of a line whose end has yet to come
        self._skip = 0  # bytes of a bulk string that have yet to come
        self._bytes = 0  # announced in this answer
        self._values = 0  # announced in this answer, and not begun yet

    def add(self, data: bytes) -> None:
        """Look at ``data``.  Raises TooMuch for more than is allowed: then nothing that follows may be read."""
        if not (self._skip or self._line or self._values) and _USUAL.fullmatch(data):
            return
        if self._line:
            data = self._line + data
            self._line = b""
        at, size = 0, len(data)
        while True:
            step = min(self._skip, size - at)
            self._skip -= step
            at += step
            if at == size:
                return
            end = data.find(b"\r\n", at)
            if (size if end < 0 else end) - at > LINE:
                raise TooMuch(f"it sends a line of more than {LINE} bytes")
            if end < 0:
                self._line = data[at:]
                return
            self._begin(data[at:end])
            at = end + 2

    def _begin(self, line: bytes) -> None:
        """Look at the first line of a value.  For an aggregate it announces how many values follow."""
        if self._values:
            self._values -= 1
        else:
            self._bytes = 0
        kind = line[:1]
        if not kind:
            return
        if kind in _BULKS:
            announced = _announced(line)
            self._bytes += max(0, announced)
            if self._bytes > BYTES:
                raise TooMuch(f"it announces an answer of {self._bytes} bytes, allowed are {BYTES}")
            self._skip = announced + 2 if announced >= 0 else 0
        elif kind in _AGGREGATES:
            self._values += max(0, _announced(line)) * (2 if kind in _PAIRS else 1)
            if self._values > VALUES:
                raise TooMuch(f"it announces an answer of {self._values} values, allowed are {VALUES}")


def _announced(line: bytes) -> int:
    """The size that ``line`` announces.  Less than 0: there is no value."""
    if not _NUMBER.fullmatch(line, 1):
        raise TooMuch(f"it announces {line[:40]!r}, which is no size")
    return int(line[1:])
