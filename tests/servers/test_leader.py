"""Elections, in threads and between processes (R31).  Those of asyncio are in test_leader_asyncio.py."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import redlock
from redlock import ConfigurationError, LockLost, RedlockError
from tests.servers.commands import environment
from tests.servers.look import eventually, nothing_left

TTL = 2.0


@pytest.fixture
def masters(redlock_servers):
    with redlock.Masters(redlock_servers.urls, restart_guard=False, owner="this") as masters:
        yield masters


@pytest.fixture
def others(redlock_servers):
    with redlock.Masters(redlock_servers.urls, restart_guard=False, owner="other") as others:
        yield others


@pytest.fixture(autouse=True)
def _as_before(redlock_servers):
    """No key, no thread and no signal handler is left; the threads are looked for by another fixture."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    gc.collect()
    eventually(lambda: nothing_left(redlock_servers))
    assert handlers == {number: signal.getsignal(number) for number in handlers}


class Running:
    """An election that runs in a thread."""

    def __init__(self, election, lead, **options):
        self.election = election
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(lead, options))
        self._thread.start()

    def _run(self, lead, options):
        try:
            self.election.run(lead, **options)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    @property
    def over(self):
        return not self._thread.is_alive()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.election.stop()
        self._thread.join(30)
        assert self.over


def until_told(term):
    term.wait_stop()


class Led:
    """A body that says so."""

    def __init__(self, led):
        self._led = led

    def __call__(self, term):
        self._led.set()
        until_told(term)


def take_it_away(servers, name="beat"):
    """Somebody deletes the key of the leader."""
    for number in range(len(servers.urls)):
        servers.client(number).delete(f"redlock:{name}")


# -- terms -------------------------------------------------------------------------------------------


def test_each_term_has_a_greater_number(masters):
    election = masters.leader("beat", ttl=TTL)
    numbers = []
    for term in election.terms():
        with term:
            assert election.term is term
            assert term.valid
            assert not term.should_stop
            assert (term.name, term.owner) == ("beat", "this")
            assert 0 < term.remaining() <= TTL
            assert election.status().fence >= term.number
            assert election.status().owner == "this"
            numbers.append(term.number)
        assert election.term is None
        assert not masters.status("beat").token
        if len(numbers) == 3:
            election.stop()
    assert numbers == sorted(set(numbers))


def test_one_leads_and_the_other_one_follows_at_once(masters, others):
    led = threading.Event()
    with Running(masters.leader("beat", ttl=30), Led(led)) as first:
        assert led.wait(20)
        seen: list[str] = []
        second = others.leader("beat", ttl=30)
        led.clear()
        with Running(second, Led(led), on_new_leader=seen.append):
            eventually(lambda: seen == ["this"])
            assert second.term is None
            first.election.stop()
            assert led.wait(20)  # not after a TTL
            assert second.status().owner == "other"
            assert seen == ["this"]


def test_a_lost_term_ends_silently_and_the_next_one_begins(masters, redlock_servers):
    election = masters.leader("beat", ttl=TTL)
    terms: list[redlock.Term] = []
    stopped: list[redlock.Term] = []

    def lead(term):
        terms.append(term)
        if len(terms) == 1:
            take_it_away(redlock_servers)
            assert term.wait_stop(20)  # long before the end of the test, and without a stop
            assert term.lost
            assert term.wait_lost(20)
            with pytest.raises(LockLost):
                term.ensure()
            assert election.term is None
        else:
            election.stop()

    election.run(lead, on_stopped=stopped.append)
    assert len(terms) == 2
    assert stopped == terms


def test_ensure_may_leave_the_body(masters, redlock_servers):
    election = masters.leader("beat", ttl=TTL)
    numbers = []
    for term in election.terms():
        with term:
            numbers.append(term.number)
            if len(numbers) == 2:
                election.stop()
                continue
            take_it_away(redlock_servers)
            while True:
                term.ensure()
                time.sleep(0.01)
    assert len(numbers) == 2


def test_somebody_elses_loss_is_an_error_of_the_body(masters):
    def lead(_):
        raise LockLost("the lease on 'invoice' was lost", name="invoice", reason="taken")

    with pytest.raises(LockLost, match="invoice"):
        masters.leader("beat", ttl=TTL).run(lead)


def test_a_term_lasts_for_max_hold_at_most(masters):
    election = masters.leader("beat", ttl=TTL, max_hold=0.3)
    ended = []

    def lead(term):
        assert term.wait_stop(20)
        ended.append(term.lost)
        if len(ended) == 2:
            election.stop()

    election.run(lead)
    assert ended == [True, True]


def test_a_loop_that_is_left_gives_the_term_back(masters, redlock_servers):
    for term in masters.leader("beat").terms():  # noqa: B007
        break
    assert term.valid  # for as long as somebody has it
    del term
    gc.collect()
    eventually(lambda: nothing_left(redlock_servers))


def test_a_body_that_raises_ends_the_loop_and_the_term(masters):
    election = masters.leader("beat", ttl=30)
    with pytest.raises(ValueError, match="x"):
        for term in election.terms():
            with term:
                raise ValueError("x")
    assert not masters.status("beat").token
    for again in election.terms():  # the loop is over, so another one may begin
        with again:
            election.stop()


# -- run ---------------------------------------------------------------------------------------------


def test_what_the_body_raised_is_raised_when_all_is_given_back(masters):
    stopped = []

    def lead(_):
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        masters.leader("beat", ttl=30).run(lead, on_stopped=lambda term: stopped.append(term.valid))
    assert stopped == [True]  # still in its term
    assert not masters.status("beat").token


def test_it_is_tried_again_and_others_lead_meanwhile(masters, others, caplog):
    """The lock is given back before the pause."""
    failing, led = threading.Event(), threading.Event()

    def lead(_):
        failing.set()
        raise ValueError("the disk is full")

    with Running(masters.leader("beat", ttl=30), lead, on_error="retry") as first:
        assert failing.wait(20)
        with Running(others.leader("beat", ttl=30), Led(led)):
            assert led.wait(20)
        assert not first.over
    assert first.error is None
    assert any("leading 'beat' failed" in text and "the disk is full" in text for text in caplog.text.split("ERROR"))


def test_a_stop_in_a_campaign_ends_it_at_once(masters, others, redlock_servers):
    led = threading.Event()
    with Running(masters.leader("beat", ttl=30), Led(led)):
        assert led.wait(20)
        second = Running(others.leader("beat", ttl=30), lambda _: pytest.fail("it must not lead"))
        time.sleep(0.2)
        second.election.stop()
        eventually(lambda: second.over)
        assert second.error is None


def test_a_stop_without_masters(redlock_servers):
    """Nobody answers: it campaigns, and can be stopped."""
    for number in range(len(redlock_servers.urls)):
        redlock_servers.kill(number)
    with redlock.Masters(redlock_servers.urls, restart_guard=False) as masters:
        running = Running(masters.leader("beat"), lambda _: pytest.fail("it must not lead"))
        time.sleep(0.3)
        assert not running.over
        running.election.stop()
        eventually(lambda: running.over)
        assert running.error is None


def test_a_stopped_election_stays_stopped(masters):
    election = masters.leader("beat")
    election.stop()
    election.run(lambda _: pytest.fail("it must not lead"))
    assert list(election.terms()) == []


def test_one_object_is_one_candidate(masters):
    election = masters.leader("beat")
    for term in election.terms():
        with term:
            with pytest.raises(RedlockError, match="runs already"):
                election.run(until_told)
            election.stop()


def test_masters_that_are_closed_end_a_campaign(masters, others):
    for term in masters.leader("beat", ttl=30).terms():
        with term:
            running = Running(others.leader("beat"), until_told)
            time.sleep(0.2)
            others.close()
            with running:
                eventually(lambda: running.over)  # noqa: B023
            assert isinstance(running.error, RedlockError)
            break


@pytest.mark.parametrize(
    ("options", "text"),
    [({"ttl": 0}, "ttl"), ({"ttl": 3600.0}, "max_ttl"), ({"max_hold": -1}, "max_hold"), ({"retry": 3}, "retry")],
)
def test_wrong_options_are_refused_at_once(masters, options, text):
    with pytest.raises(ConfigurationError, match=text):
        masters.leader("beat", **options)


def test_wrong_arguments_of_run(masters):
    async def coroutine_function(term):
        pass

    election = masters.leader("beat")
    for arguments in (
        {"lead": 3},
        {"lead": coroutine_function},
        {"lead": until_told, "on_error": "ignore"},
        {"lead": until_told, "signals": (signal.SIGKILL,)},
        {"lead": until_told, "signals": ("TERM",)},
        {"lead": until_told, "on_stopped": 3},
    ):
        with pytest.raises(ConfigurationError):
            election.run(**arguments)
    with pytest.raises(TypeError):
        masters.leader("beat", fencing=False)


# -- signals -----------------------------------------------------------------------------------------


def test_a_signal_stops_it_and_a_second_one_does_what_it_did(masters):
    """Ctrl-C tells the body.  If that goes on, another Ctrl-C raises KeyboardInterrupt in it."""
    stopped: list[redlock.Term] = []

    def lead(term):
        signal.raise_signal(signal.SIGINT)
        assert term.should_stop
        assert term.wait_stop(20)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("a second Ctrl-C is a KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        masters.leader("beat", ttl=30).run(lead, on_stopped=stopped.append)
    assert len(stopped) == 1
    assert not masters.status("beat").token


def test_only_the_signals_that_were_asked_for(masters):
    election = masters.leader("beat")

    def lead(_):
        assert signal.getsignal(signal.SIGTERM) is before
        signal.raise_signal(signal.SIGUSR1)

    before = signal.getsignal(signal.SIGTERM)
    election.run(lead, signals=(signal.SIGUSR1,))


def test_a_handler_that_the_body_installs_stays(masters):
    election = masters.leader("beat")
    before = signal.getsignal(signal.SIGUSR1)

    def lead(_):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        election.stop()

    try:
        election.run(lead, signals=(signal.SIGUSR1,))
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_forked_child_has_nothing_of_it(masters, redlock_servers):
    """It does not lead, gives nothing back, and a SIGTERM ends it as any other process."""
    read, write = os.pipe()
    children = []
    stopped: list[redlock.Term] = []

    def lead(term):
        pid = os.fork()
        if not pid:
            os.write(write, b"stop" if term.should_stop and not term.lost else b"????")
            return  # from the body, in the child
        children.append(pid)
        if len(children) == 1:
            assert os.waitpid(pid, 0)[1] == 0
        time.sleep(0.1)
        assert term.valid  # the child has not given it back
        election.stop()

    election = masters.leader("beat", ttl=TTL)
    pid = os.getpid()
    try:
        election.run(lead, on_stopped=stopped.append)
    finally:
        if os.getpid() != pid:
            os._exit(len(stopped))  # it comes out of `run`, and campaigns no more
    assert len(stopped) == 1  # and in the child nobody was told
    assert os.read(read, 4) == b"stop"
    os.close(read)
    os.close(write)


def test_a_signal_ends_a_forked_child(masters):
    codes = []

    def lead(_):
        pid = os.fork()
        if not pid:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                os._exit(7)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        election.stop()

    election = masters.leader("beat", ttl=30)
    election.run(lead)
    assert codes == [-signal.SIGTERM]


# -- between processes -------------------------------------------------------------------------------


class Process:
    def __init__(self, servers, world, owner, *, ttl=TTL, lasts=0.0):
        command = [sys.executable, "-m", "tests.servers.candidate", world, owner, str(ttl), str(lasts), *servers.urls]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
        self._lines: list[list[str]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._lines.append(line.split())

    def said(self, what):
        """When it said so, the last time."""
        return next((float(line[-1]) for line in reversed(self._lines) if line[0] == what), None)

    def number(self):
        return next(int(line[1]) for line in self._lines if line[0] == "leads")

    def leads(self):
        return eventually(lambda: self.said("leads"), 60)

    def end(self):
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.kill()
        self.popen.wait(30)
        self._reader.join(30)
        assert self.popen.stdout is not None
        self.popen.stdout.close()


@pytest.fixture
def process(redlock_servers):
    made = []

    def make(*arguments, **options):
        made.append(Process(redlock_servers, *arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.mark.parametrize("world", ["threads", "asyncio"])
def test_sigterm_hands_over_when_the_body_has_ended(process, redlock_servers, world):
    first = process(world, "first", ttl=30, lasts=0.5)
    first.leads()
    second = process(world, "second", ttl=30)
    time.sleep(0.5)
    assert second.said("leads") is None
    first.popen.terminate()
    assert second.leads() >= eventually(lambda: first.said("ended"))
    assert second.number() > first.number()
    eventually(lambda: first.popen.poll() is not None)
    assert first.popen.returncode == 0
    assert first.said("over")
    second.popen.terminate()
    assert second.popen.wait(30) == 0


@pytest.mark.parametrize("world", ["threads", "asyncio"])
def test_another_one_leads_after_a_kill_and_after_a_freeze(process, world):
    """R31: within a TTL.  Who was frozen sees that its term is over, and stands again."""
    first = process(world, "first")
    first.leads()
    second = process(world, "second")
    time.sleep(0.3)
    first.popen.kill()
    second.leads()
    third = process(world, "third")
    time.sleep(0.3)
    second.popen.send_signal(signal.SIGSTOP)
    third.leads()
    assert third.number() > second.number() > first.number()
    second.popen.send_signal(signal.SIGCONT)
    eventually(lambda: second.said("ended"))
    assert second.popen.poll() is None  # it campaigns
    second.popen.terminate()
    third.popen.terminate()
    assert (second.popen.wait(30), third.popen.wait(30)) == (0, 0)
