"""A process that has used up its descriptors makes masters and asks for a lock; then it closes some, and asks again.

usage: python -m tests.servers.hog WORLD FOLDER-OF-A-CERTIFICATE URL ...
"""

import os
import resource
import sys

from tests.servers import worlds


def used_up():
    taken: list[int] = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return taken


def asked(lock, **options):
    try:
        lease = lock.acquire(**options)
    except Exception as error:  # noqa: BLE001 - it is what the test looks at
        return f"{type(error).__name__}: {' / '.join(str(error).splitlines())}"
    return "granted" if lease else "held"


def main(name, folder, *urls):
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    # Once Python has failed to load it, no name is resolved any more.
    assert "encodings.idna" in sys.modules
    with worlds.opened(name) as world:
        with world.Masters(urls):
            pass  # the first ones import what they need
        taken = used_up()
        with world.Masters([f"rediss://localhost:1?ssl_ca_certs={folder}/cert.pem"]):
            print("made", flush=True)
        with world.Masters(urls, restart_guard=False) as masters:
            lock = masters.lock("job", ttl=10)
            for descriptor in taken[: int(os.environ["FREE"])]:
                os.close(descriptor)
            print(f"then: {asked(lock, timeout=0)}", flush=True)
            for descriptor in taken[int(os.environ["FREE"]) :]:
                os.close(descriptor)
            print(f"later: {asked(lock, timeout=5)}", flush=True)
            lock.release()


main(*sys.argv[1:])
