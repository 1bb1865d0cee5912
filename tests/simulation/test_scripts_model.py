"""The simulated master answers what a real server answers, for random sequences of script calls."""

from __future__ import annotations

import random
from itertools import repeat
from unittest.mock import Mock

import pytest
import redis
from redis.exceptions import NoScriptError, RedisError

from redlock import scripts
from redlock._core import wire
from redlock._core.fair import tickets
from redlock._core.outcomes import ErrorReply
from tests.bench.parameters import Parameters
from tests.servers.one import redis_server
from tests.simulation.master import Key, Master
from tests.simulation.world import World

CALLS = 60
A_TIME = 2000  # ms: a number beyond it is a remaining time. The real one goes on, the simulated one stands still here
ROUNDED = 5  # ms
FLEET = wire.FLEET + "redlock:"
USUAL = tuple(script.name for script in scripts.USUAL)
IN_LINE = (*["ticket"] * 4, "acquire_fair", "acquire_fair", "acquire", "fence", "release")
LIFE = "local LIFE = 1000\n"
SAYS: tuple[wire.Says, ...] = ("new", "working", "back", "refused", "left")
NAMES = ("a", "b", "with {tag}")
GROUP = tuple(f"redlock:{name}" for name in NAMES)  # the names are slots of one group as well
FENCES = (1, 5, 5, 6, 1_700_000_000_000_000, 2**52)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("server")) as port, redis.Redis(port=port) as client:
        yield client


@pytest.fixture(autouse=True)
def _tickets_last(monkeypatch):
    """For longer than a test: the clock of a simulated master stands still here, and a real one's does not."""
    patient = {script: script.text for script in scripts.ALL if LIFE in script.text}
    assert {script.name for script in patient} == {"ticket", "acquire_fair", "acquire_fair_recorded"}
    for script, text in patient.items():
        other = scripts.Script(script.name, text.replace(LIFE, "local LIFE = 100000\n"))
        monkeypatch.setattr(script, "text", other.text)
        monkeypatch.setattr(script, "sha", other.sha)


def random_call(chance, kinds):
    names = chance.choice((("a",), ("b",), ("a", "b"), ("b", "a"), ("with {tag}",)))
    keys = wire.keys_for("redlock:", names, fencing=chance.random() < 0.9)
    waiter = chance.choice(("w1", "w2", "w3"))
    token, fence = chance.choice(("t1", "t2", "t3")), chance.choice(FENCES)
    asked = tuple(chance.sample(range(len(GROUP)), chance.randrange(1, len(GROUP) + 1)))
    ttl = 30.0 + 5 * chance.randrange(1000)  # never almost equal: which of two is longer must be clear
    match chance.choice(kinds):
        case "acquire":
            return wire.acquire(keys, token, ttl, fence, 3600.0)
        case "fence" if keys.fences:
            return wire.fence(keys, token, fence, 3600.0)
        case "ticket" if keys.fences and chance.random() < 0.2:
            return tickets.leave(keys, waiter, 3600.0)
        case "ticket" if keys.fences:
            return tickets.stand(keys, waiter, fence, 3600.0, new=chance.random() < 0.5)
        case "acquire_fair" if keys.fences:
            recorded = wire.keys_for("redlock:", names, records=True)
            return tickets.acquire(chance.choice((keys, recorded)), token, ttl, fence, 3600.0, waiter)
        case "extend":
            return wire.extend(keys, token, ttl, 3600.0)
        case "renew":
            others = wire.keys_for("redlock:", chance.choice((("a",), ("b",), ("with {tag}",))))
            leases = [(keys, token, ttl), (others, chance.choice(("t1", "t2")), ttl + 5), (keys, "t3", ttl)]
            return wire.renew(leases[: chance.randrange(4)], 3600.0)
        case "repair":
            return wire.repair(keys, token, ttl, fence, 3600.0)
        case "announce":
            return wire.announce("redlock:", ttl)
        case "fleet":  # none of these lists goes with all of the others
            masters = chance.choice((("x", "y", "z"), ("x", "y"), ("v", "w", "x"), ("w",)))
            return wire.fleet("redlock:", masters, token, chance.choice(SAYS), ttl)
        case "status":
            return wire.status(keys.locks[0])
        case "acquire_shared":
            return wire.acquire_shared(keys, token, ttl, fence, 3600.0, chance.choice((2, 10)))
        case "extend_shared":
            return wire.extend_shared(keys, token, ttl, 3600.0, reads=chance.random() < 0.3)
        case "repair_shared":
            return wire.repair_shared(keys, token, ttl, fence, 3600.0)
        case "release_shared":
            return wire.release_shared(keys, token)
        case "occupy":
            fences = tuple(wire.fence_key(GROUP[slot]) for slot in asked) if keys.fences else ()
            return wire.occupy(wire.Keys(GROUP, ()), asked, wire.Keys((), fences), token, ttl, fence, 3600.0)
        case "vacate":
            own = wire.Keys(tuple(GROUP[slot] for slot in asked), ())
            return wire.vacate("redlock:group#", asked, own, token, chance.choice((0.0, ttl - 2.0, 2 * ttl)))
        case "mark":
            return wire.mark(keys, chance.choice(("w1", "w2")), chance.choice((ttl, 0.0)))
    return wire.release(keys, token, chance.choice((0.0, ttl - 2.0, 2 * ttl)))


def disturb(chance, server, master):
    """What other software may do to our keys."""
    lock = "redlock:" + chance.choice(NAMES)
    fence = wire.fence_key(lock)
    match chance.randrange(7):
        case 5:  # a sorted set that is not ours
            server.delete(lock)
            server.zadd(lock, {"t1": 5})
            master.keys[lock] = key = Key(None, None)
            key.members = {"t1": Key("t1", 5)}
        case 6:  # lists of masters that are none
            server.delete(FLEET)
            if chance.random() < 0.5:
                server.set(FLEET, "x")
                master.keys[FLEET] = Key("x", None)
            else:
                server.hset(FLEET, "abc", "5 no list")
                master.keys[FLEET] = Key({"abc": "5 no list"}, None)
        case 0:  # a key of another type
            server.delete(lock)
            server.rpush(lock, "x")
            master.keys[lock] = Key(None, None)
        case 1:  # a lock without expiry
            server.set(lock, "t1")
            master.keys[lock] = Key("t1", None)
        case 2:  # a fence that is none
            value = chance.choice(("abc", "-1", "1.5", str(2**53), str(2**53 - 1)))
            server.set(fence, value)
            master.keys[fence] = Key(value, None)
        case 3:
            server.delete(lock, fence, FLEET)
            master.keys.pop(FLEET, None)
            master.keys.pop(lock, None)
            master.keys.pop(fence, None)
        case _:
            server.script_flush()
            master.flush_scripts()


def ask(server, call, *, text, functions):
    words = call.words_as_function if functions else call.words_with_text if text else call.words
    try:
        reply = server.execute_command(*words)
    except NoScriptError:
        return ErrorReply("NOSCRIPT")
    except RedisError as error:
        return ErrorReply(str(error))
    if isinstance(reply, list):
        return [ErrorReply(str(one)) if isinstance(one, RedisError) else one for one in reply]
    return reply


def ms_of(server):
    """Its clock."""
    seconds, microseconds = server.time()
    return 1000 * seconds + microseconds / 1000


def alike(real, simulated, passed):
    """Whether both say the same; ``passed``: ms on the real server's clock since the clock here stands still."""
    if isinstance(real, ErrorReply) or isinstance(simulated, ErrorReply):
        return isinstance(real, ErrorReply) and isinstance(simulated, ErrorReply) and real.code == simulated.code
    if isinstance(real, list) and isinstance(simulated, list):
        return len(real) == len(simulated) and all(map(alike, real, simulated, repeat(passed)))
    if isinstance(real, int) and isinstance(simulated, int) and simulated > A_TIME:
        return 0 <= simulated - real <= passed
    if isinstance(real, bytes) and isinstance(simulated, bytes) and b"\n" in real:  # a list of masters
        return all(map(alike, _with_time(real), _with_time(simulated), repeat(passed)))
    return type(real) is type(simulated) and real == simulated


def tied(call, master):
    """A name was released and kept beside one that ends at the same moment: a real server rounds, and shows either."""
    there = [master.keys[name] for name in GROUP if name in call.keys and name in master.keys]
    return len({(key.expires, key.value) for key in there}) > len({key.expires for key in there})


def _with_time(shown):
    head, _, names = shown.partition(b"\n")
    mark, left = head.split()
    return mark, int(left), names.split()


def loaded(server):
    """Whether it has functions, as Redis before 7 has not (R44)."""
    try:
        return server.function_load(scripts.library.__wrapped__()[0], replace=True)
    except RedisError as error:
        assert "unknown command" in str(error).lower()  # noqa: PT017
        return None


@pytest.mark.parametrize("kinds", [USUAL, IN_LINE], ids=["usual", "in-line"])
@pytest.mark.parametrize("seed", range(30))
def test_same_replies(server, seed, kinds):
    """The half of the seeds by functions (R44)."""
    functions = seed % 2 and loaded(server)
    server.flushall()
    server.script_flush()
    chance = random.Random(seed)
    world = World(seed)
    judge = Mock(parameters=Parameters(seed))
    master = Master(world, judge, 0, rate=1.0, offset=0.0, age=100.0, durable=False)
    history, begun = [], ms_of(server)
    for _ in range(CALLS):
        if chance.random() < 0.15:
            disturb(chance, server, master)
        call, text = random_call(chance, kinds), bool(functions) | (chance.random() < 0.7)
        real, simulated = ask(server, call, text=text, functions=functions), master.evaluate(call, text=text)
        history.append((call.script.name, call.keys, call.args, real, simulated))
        passed = ms_of(server) - begun + ROUNDED
        if tied(call, master) and isinstance(real, list) and isinstance(simulated, list):
            real, simulated = ([one for one in reply if type(one) is not bytes] for reply in (real, simulated))
        assert alike(real, simulated, passed), history[-3:]
