"""Where client processes come from: each is a fork of one that has imported all that they need.

An interpreter of its own would take longer to import that than most clients take for their work.  The session asks, one
line of JSON a time, and has one line for an answer.  To a client this process is the parent, so that only this one can
wait until it has stopped or ended.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket


class Nursery:
    """``statuses``: of all that there ever were, by name; None while it runs."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        gc.freeze()  # what is not looked at stays shared with the clients

    def serve(self) -> list[str]:
        """Returns in each client, with what was said of it; here only by `SystemExit`, when the session is gone."""
        with socket.socket(fileno=os.dup(0)) as session, session.makefile("rw") as talk:
            for line in talk:
                what, *said = json.loads(line)
                if what == "start":
                    name, log, *_ = said
                    pid = os.fork()
                    if pid == 0:
                        return _begin(log, said)
                    self._pids[name] = pid
                elif what == "signal":
                    self._signal(*said)
                self._look()
                talk.write(json.dumps(dict.fromkeys(self._pids) | self._ended) + "\n")
                talk.flush()
        raise SystemExit

    def _signal(self, name: str, number: int) -> None:
        """In force on return: sent is neither stopped nor ended."""
        self._look()
        if name in self._ended:
            return
        os.kill(self._pids[name], number)
        if number in (signal.SIGSTOP, signal.SIGKILL):
            os.waitid(os.P_PID, self._pids[name], os.WSTOPPED * (number == signal.SIGSTOP) | os.WEXITED | os.WNOWAIT)

    def _look(self) -> None:
        for name in self._pids.keys() - self._ended.keys():
            pid, status = os.waitpid(self._pids[name], os.WNOHANG)
            if pid:
                self._ended[name] = os.waitstatus_to_exitcode(status)


def _begin(log: str, said: list[str]) -> list[str]:
    sink, source = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), os.open(os.devnull, os.O_RDONLY)
    for ours, end in ((source, 0), (sink, 1), (sink, 2)):
        os.dup2(ours, end)
    return said
