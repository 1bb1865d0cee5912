"""Linux or macOS without what Windows does not have, as far as Python lets itself be told so.

``python pretended.py -c PROGRAM``.  What is not ours is imported first: it decides at its import what it needs, and is not
what is tested.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import socket
import stat
import sys
import types

_FIRST = ("multiprocessing", "pty", "pytest", "_pytest.pytester")  # and what redlock needs
_NO_MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
_GONE = {
    "os": (
        "chown confstr eventfd fchmod fchown fork forkpty get_blocking getegid geteuid getgid getpgid getpgrp getsid getuid "
        "killpg lockf memfd_create mkfifo nice openpty pidfd_open pipe2 register_at_fork sched_getaffinity set_blocking "
        "setpgid setsid setuid statvfs sysconf tcgetpgrp ttyname uname wait wait3 wait4 waitid O_CLOEXEC O_DIRECTORY "
        "O_NOFOLLOW O_NONBLOCK P_PID WNOHANG WNOWAIT WEXITED WSTOPPED EX_OK EX_USAGE"
    ),
    "time": "clock_gettime clock_gettime_ns CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_REALTIME tzset",
    "signal": (
        "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH SIG_BLOCK SIG_SETMASK "
        "SIG_UNBLOCK alarm pause pthread_kill pthread_sigmask setitimer sigpending sigtimedwait sigwait"
    ),
    "socket": "AF_UNIX MSG_DONTWAIT MSG_NOSIGNAL SO_PEERCRED SO_REUSEPORT TCP_USER_TIMEOUT TCP_KEEPALIVE recv_fds send_fds",
    "select": "epoll kqueue poll",
}  # fmt: skip


def pretend() -> None:
    for name in (
        *_FIRST,
        *(one.name for one in pkgutil.walk_packages(["redlock"], "redlock.", onerror=lambda _: None)),
    ):
        with contextlib.suppress(Exception):  # not everything is everywhere, and some of it wants to be configured
            importlib.import_module(name)
    for name in [one for one in sys.modules if one.partition(".")[0] == "redlock"]:
        del sys.modules[name]
    _keep_for("subprocess", "os", "signal")
    for name, gone in _GONE.items():
        module = sys.modules[name]
        for one in (*gone.split(), *(one for one in dir(module) if one.startswith(("POLL", "EPOLL", "KQ_")))):
            if hasattr(module, one):
                delattr(module, one)
    for name in _NO_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    _watch_sockets_only()
    sys.modules["socket"].socketpair = _pair_over_tcp  # type: ignore[attr-defined]
    sys.modules["io"]._WindowsConsoleIO = type("_WindowsConsoleIO", (), {})  # type: ignore[attr-defined]
    _wait_with_proactors()
    pathlib = sys.modules["pathlib"]
    pathlib.WindowsPath = pathlib.PosixPath  # type: ignore[attr-defined]
    sys.platform = "win32"
    os.name = "nt"


def _keep_for(user: str, *names: str) -> None:
    """A module of the standard library has what it needs, as it would if it had been written for Windows."""
    for name in names:
        kept = types.ModuleType(name)
        vars(kept).update(vars(sys.modules[name]))
        setattr(sys.modules[user], name, kept)


def _pair_over_tcp(*_: object) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return socket.create_connection(listener.getsockname()), listener.accept()[0]


def _watch_sockets_only() -> None:
    """There select() takes no pipes, and not nothing either."""
    import select  # noqa: PLC0415
    import selectors  # noqa: PLC0415

    look = select.select

    def on_sockets(read, write, other, *timeout):
        several = [*read, *write, *other]
        if not several:
            raise OSError(10022, "An invalid argument was supplied")
        for one in several:
            if not stat.S_ISSOCK(os.fstat(one if isinstance(one, int) else one.fileno()).st_mode):
                raise OSError(10038, "An operation was attempted on something that is not a socket")
        return look(read, write, other, *timeout)

    select.select = on_sockets
    selectors.SelectSelector._select = staticmethod(on_sockets)  # type: ignore[attr-defined]
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc, assignment]
    for name in ("EpollSelector", "PollSelector", "KqueueSelector"):
        if hasattr(selectors, name):
            delattr(selectors, name)


def _wait_with_proactors() -> None:
    """The loop that asyncio makes there does not watch descriptors."""
    import asyncio  # noqa: PLC0415

    class ProactorEventLoop(asyncio.SelectorEventLoop):
        def add_reader(self, *_: object) -> None:
            raise NotImplementedError

        add_writer = add_reader  # type: ignore[assignment]

    asyncio.ProactorEventLoop = ProactorEventLoop  # type: ignore[attr-defined]
    asyncio.get_event_loop_policy()._loop_factory = ProactorEventLoop  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    pretend()
    program, sys.argv = sys.argv[2], ["-c", *sys.argv[3:]]
    exec(compile(program, "<pretended>", "exec"), {"__name__": "__main__"})  # noqa: S102
