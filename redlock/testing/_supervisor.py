"""Outlives the process that started it by a moment, to end the servers that it left behind.

A program of its own, run by path: it must start fast, for the servers wait for it, and depend on nothing
but the standard library.  Standard input, output and error are one end of a socket whose other end
only the test process has, so end of file means that it is gone, however it went.
"""

import os
import sys
import time

# That of the module signal, which takes half as long to import as all the rest takes.
_SIGKILL = 9


def main(directory: str) -> None:
    if os.getpgrp() != os.getpid():
        sys.exit("started by hand, this would kill whoever started it")
    # Made by whoever removes it: so it is never left by a process that dies in between, and never
    # somebody else's.
    try:
        os.mkdir(directory, 0o700)  # noqa: PTH102 - pathlib takes long to import
    except OSError as error:
        sys.exit(f"errno {error.errno}")
    try:
        os.write(1, b"errno 0\n")
        while os.read(0, 64):
            pass
    except ConnectionError:
        pass  # it has gone without having read this
    try:
        cleaner = os.fork()
        if cleaner == 0:
            remove(directory)
            os._exit(0)
        # Out of the group that dies in the next line.
        os.setpgid(cleaner, 0)
    finally:
        # The group, not a list of process ids: it cannot miss a server that was just started, and no
        # stranger can have got its number while this process, its leader, lives.  It ends here too.
        os.killpg(0, _SIGKILL)


def remove(directory: str, patience: float = 10.0) -> None:
    """Again until it is gone: a server may create a file while it dies."""
    import shutil  # noqa: PLC0415 - most supervisors never get here

    gives_up = time.monotonic() + patience
    while time.monotonic() < gives_up:
        shutil.rmtree(directory, ignore_errors=True)
        if not os.access(directory, os.F_OK):
            return
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1])
