"""Waking a thread that sits in poll()."""

from __future__ import annotations

import contextlib
import os


class Bell:
    """A pipe to poll on: `ring` makes its `fd` readable, `silence` ends that."""

    __slots__ = ("_write", "fd")

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)

    def ring(self) -> None:
        # Full: it rings already.  Closed: nobody is left to hear it.
        with contextlib.suppress(OSError):
            os.write(self._write, b"!")

    def silence(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self.fd, 4096)

    def close(self) -> None:
        read, write, self.fd, self._write = self.fd, self._write, -1, -1
        for fd in (read, write):
            with contextlib.suppress(OSError):
                os.close(fd)

    __del__ = close
