"""Waking a thread that sits in poll()."""

from __future__ import annotations

import contextlib
import os


class _WriteEnd:
    """Where a pipe is written to, open for as long as anybody refers to it.

    Whoever writes has let go of the interpreter's lock.  If it were closed then, its number could be somebody else's
    by the time at which the kernel looks at it.
    """

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self) -> None:
        os.write(self._fd, b"!")

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # a signal handler raised before it was told
            os.close(self._fd)


class Waker:
    """A pipe to poll on: `wake` makes its `fd` readable, `drain` ends that."""

    __slots__ = ("_write", "fd")

    def __init__(self) -> None:
        self.fd = -1  # for `close`, if a signal handler raises here
        self._write: _WriteEnd | None = None
        self.fd, write = os.pipe()
        self._write = _WriteEnd(write)
        os.set_blocking(self.fd, False)
        os.set_blocking(write, False)

    def wake(self) -> None:
        end = self._write
        if end is not None:  # else nobody is left to hear it
            with contextlib.suppress(OSError):  # full: it is readable already
                end.write()

    def drain(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self.fd, 4096)

    def close(self) -> None:
        """Takes no lock: the collector may do this in any thread, and a forked child does."""
        read, self.fd, self._write = self.fd, -1, None
        with contextlib.suppress(OSError):
            os.close(read)

    __del__ = close
