"""Outlives the test process by a moment, to end the servers that it left behind.

It is a program of its own, run by path. It must start fast, as the servers wait for it, and it uses only the standard
library. Standard input, output and error are one end of a socket. Only the test process has the other end. So end of
file means that the test process is gone, however it ended.
"""

import os
import sys
import time

# The same as `signal.SIGKILL`. Importing the module signal would take half as long as all the rest together.
_SIGKILL = 9


def main(directory: str) -> None:
    if os.getpgrp() != os.getpid():
        sys.exit("started by hand, this would kill the process that started it")
    # The supervisor makes the directory, as it also removes it. So no process can die in between and leave it, and
    # the directory never belongs to another process.
    try:
        os.mkdir(directory, 0o700)  # noqa: PTH102 - pathlib takes long to import
    except OSError as error:
        sys.exit(f"errno {error.errno}")
    try:
        os.write(1, b"errno 0\n")
        while os.read(0, 64):
            pass
    except ConnectionError:
        pass  # the test process ended without having read our answer
    try:
        cleaner = os.fork()
        if cleaner == 0:
            remove(directory)
            os._exit(0)
        # Take it out of the group, which is killed below.
        os.setpgid(cleaner, 0)
    finally:
        # Kill the group, not a list of process ids: that cannot miss a server that was just started. The group's number
        # cannot be reused while this process, its leader, lives. This process ends here too.
        os.killpg(0, _SIGKILL)


def remove(directory: str, patience: float = 10.0) -> None:
    """Remove the directory, repeatedly until it is gone: a server may create a file while it dies."""
    import shutil  # noqa: PLC0415 - most supervisors never get here

    gives_up = time.monotonic() + patience
    while time.monotonic() < gives_up:
        shutil.rmtree(directory, ignore_errors=True)
        if not os.access(directory, os.F_OK):
            return
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1])
