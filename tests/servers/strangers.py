"""What answers at the address of a master and is none."""

import contextlib
import itertools
import re
import socket
import threading


@contextlib.contextmanager
def serving(serve):
    """Calls ``serve`` with each connection, in a thread of its own, and yields the port."""
    threads: list[threading.Thread] = []

    def one(connection):
        with connection, contextlib.suppress(OSError):
            serve(connection)

    def all_of_them():
        with contextlib.suppress(OSError):
            while True:
                threads.append(threading.Thread(target=one, args=(listener.accept()[0],), daemon=True))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=all_of_them, daemon=True)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join(10)


def answering(answer):
    """Gives ``answer(command)`` to every command; yields its port."""

    def talk(connection):
        while data := connection.recv(65536):
            commands = re.findall(rb"\*\d+\r\n\$\d+\r\n(\w+)", data)
            connection.sendall(b"".join(answer(command.decode()) for command in commands))

    return serving(talk)


def saying(answer):
    """Says that, whatever it is sent, and hangs up."""

    def say(connection):
        connection.recv(4096)
        connection.sendall(answer)

    return serving(say)


def announcing(what, after):
    """A server that answers everything with OK; ``after`` so many packets it announces that."""

    def announce(connection):
        for number in itertools.count():
            if not connection.recv(65536):
                return
            connection.sendall(what if number == after else b"+OK\r\n")

    return serving(announce)
