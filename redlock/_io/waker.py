"""Wakes a thread that sits in poll()."""

from __future__ import annotations

import contextlib
import os


class _WriteEnd:
    """The write end of a pipe.  It stays open for as long as anything refers to it.

    A thread that writes to it has let go of the interpreter's lock.  If another thread closed it then, its number
    could belong to another file by the time the kernel looks at it.
    """

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self) -> None:
        os.write(self._fd, b"!")

    def close(self) -> None:
        # gevent raises ValueError for -1.  There is no `_fd` if a signal handler raised in `__init__`.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            fd, self._fd = self._fd, -1
            os.close(fd)

    __del__ = close


class Waker:
    """A pipe for `poll`: `wake` makes its `fd` readable, `read` makes it unreadable again."""

    __slots__ = ("_write", "fd")

    def __init__(self) -> None:
        self.fd, write = os.pipe()
        self._write: _WriteEnd | None = _WriteEnd(write)
        os.set_blocking(self.fd, False)
        os.set_blocking(write, False)

    def wake(self) -> None:
        """Have `poll` return.  A forked child that has not noticed it yet wakes its parent, in vain."""
        end = self._write
        if end is not None:  # else it is closed
            with contextlib.suppress(OSError):  # the pipe is full, so it is readable already
                end.write()

    def read(self, *_: object) -> bool:
        """As `Stream.read`. False: there is nothing more to do."""
        with contextlib.suppress(OSError):
            os.read(self.fd, 4096)
        return False

    def disown(self) -> None:
        """In a forked child, in which nothing ends the call of a thread of the parent that just wrote to it."""
        if self._write is not None:
            self._write.close()
        self.close()

    def close(self) -> None:
        """Close both ends.  Takes no lock: the collector may call this in any thread, and a forked child does."""
        with contextlib.suppress(OSError, ValueError, AttributeError):  # see `_WriteEnd.close`
            read, self.fd, self._write = self.fd, -1, None
            os.close(read)

    __del__ = close
