"""Every example of the documentation does what its page says."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import time

import pytest

from redlock import Masters
from redlock.testing import LocalMasters
from tests.docs.pages import DIRECTIVES, OTHER, PAGES, ROOT, Page, blocks, matches
from tests.servers.needs import missing

# They start several programs, one after the other.
SERVICES = ("shutdown.md", "django.md", "testing.md", "asyncio-service.md")


@pytest.fixture(scope="module")
def servers():
    with LocalMasters(persistence="always") as masters:
        yield masters


@pytest.fixture
def object_store():
    """Starts one, and says how boto3 finds it."""
    with contextlib.ExitStack() as stack:

        def start():
            if importlib.util.find_spec("moto") is None:
                missing("moto: pip install 'moto[s3,server]'")
            from moto.server import ThreadedMotoServer  # noqa: PLC0415 - not every machine has it

            server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
            server.start()
            stack.callback(server.stop)
            _, port = server.get_host_and_port()
            return {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "nobody",
                "AWS_SECRET_ACCESS_KEY": "nothing",
                "AWS_DEFAULT_REGION": "us-east-1",
            }

        yield start


@pytest.mark.timeout(300)  # an example in a shell has a minute
@pytest.mark.parametrize("page", [
    pytest.param(page, marks=[pytest.mark.longest] * (page.name in SERVICES), id=page.relative_to(ROOT).as_posix())
    for page in PAGES
])  # fmt: skip
def test_page(page, servers, tmp_path, monkeypatch, object_store):
    monkeypatch.setenv("REDLOCK_MASTERS", ",".join(servers.urls))
    text = page.read_text(encoding="utf-8")
    if not re.search(r"ttl=[01]\b", text):  # a TTL is at least three times node_timeout (R7)
        # Examples show what masters answer, and on a busy machine an answer may take longer than the default.
        monkeypatch.setitem(Masters.__init__.__kwdefaults__, "node_timeout", 1.5)
    if "import boto3" in text:
        for name, value in object_store().items():
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    servers.reset()
    Page(page, servers.urls, tmp_path, settle=lambda: released(servers)).run()
    assert released(servers), "an example has left a lock behind"


def released(servers):
    """A release may still be on its way to a slow master, and `close` would not wait for it."""
    until = time.monotonic() + 10
    while held(servers) and time.monotonic() < until:
        time.sleep(0.02)
    return not held(servers)


def held(servers):
    """Not what was released, and is kept from others for a while (R28)."""
    return [key for keys in servers.keys("redlock:*") for key, (value, _) in keys.items() if value[:9] != "released:"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_nothing_is_left_out(page):
    """A block in a language that nobody runs would never fail; one that is skipped says why."""
    text = page.read_text(encoding="utf-8")
    for language, block in blocks(page):
        assert language in ("python", "sh", *OTHER, *DIRECTIVES), block
    for skip in re.finditer(r"^(?:%|<!---) skip:.*\n+```(?:\{code-block\} )?(\w+)", text, re.MULTILINE):
        assert skip[1] == "sh", f"an example in Python is never skipped: {skip[0]}"
        assert re.match(r'(?:%|<!---) skip: next.*"[^"]+"', skip[0]), f"say why: {skip[0]}"


def test_a_page_that_is_wrong_is_noticed(servers, tmp_path):
    """A check that cannot fail proves nothing."""

    def run(text):
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        Page(page, servers.urls, tmp_path).run()

    fence = "```"
    right = f"{fence}python\nx = 1\nprint(x)\n{fence}\n\n{fence}{{code-block}} text\n:caption: Output\n\n1\n{fence}\n"
    run(right)
    with pytest.raises(AssertionError, match="expected"):
        run(right.replace("x = 1", "x = 2"))
    with pytest.raises(NameError):
        run(right.replace("x = 1", "y = 1"))
    with pytest.raises(AssertionError, match="exit 3"):
        run(f"{fence}sh\nexit 3\n{fence}\n")
    run(
        f"{fence}{{code-block}} text\n:caption: note.txt\n\nhello\n{fence}\n\n{fence}sh\ngrep hello note.txt\n{fence}\n"
    )


@pytest.mark.parametrize(("expected", "printed"), [
    ("a", "b\n"),
    ("a … c", "a b d"),
    ("…\nend", "one\ntwo\n"),
    ("a", "a\nb\n"),
    ("a.c", "abc"),
    ("after 0.3 ms", "after 0.3 s"),
    ("held by web-3 for up to 9.7 s", "held by web-4"),
    ("2 of 5 masters", "3 of 5 masters"),
])  # fmt: skip
def test_what_does_not_stand_for_anything(expected, printed):
    """What does is on the pages."""
    assert not matches(expected, printed)
