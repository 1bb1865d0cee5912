"""The wire contract where masters have records of grants (R35): usual answers, and the rest, are those of `wire`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redlock import scripts
from redlock._core import wire
from redlock._core.confirm.expiry import Record, Records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from redlock._core.wire import Call, Keys, Slots

LIFE = 7 * 86_400.0  # of a record, seconds: only names whose holder vanished keep one; a step of a clock is shorter
NONE = "-"  # nothing is on record


def acquire(keys: Keys, token: str, ttl: float, proposal: int, fence_ttl: float) -> Call:
    call = wire.acquire(keys, token, ttl, proposal, fence_ttl)
    args = (*call.args, _life(fence_ttl))  # not by `_replace`, which takes as long as all the rest
    return wire.Call(scripts.ACQUIRE_RECORDED, call.keys + keys.grants, args, call.usual)


def confirm(
    keys: Keys,
    token: str,
    ttl: float,
    proposal: int | str,
    fence_ttl: float,
    shown: Iterable[Collection[str]],
    *,
    phantom: bool = False,
    shared: bool = False,
) -> Call:
    """``shown``: for each name what may be on record there, "MARK TOKEN" or `NONE`.  ``shared``: for a reader (R33)."""
    args = [str(len(keys.locks)), token, str(proposal), wire.milliseconds(fence_ttl)]
    args += [_life(fence_ttl), wire.milliseconds(ttl), f"expired:{token}" if phantom else token]
    for of_name in shown:
        args += [str(len(of_name)), *sorted(of_name)]
    script = scripts.CONFIRM_SHARED if shared else scripts.CONFIRM
    return wire.Call(script, keys.locks + keys.fences + keys.grants, tuple(args))


def extend(keys: Keys, token: str, ttl: float, fence_ttl: float, stamp: str, fence: int | None) -> Call:
    call = wire.extend(keys, token, ttl, fence_ttl)
    args = (*call.args, _life(fence_ttl), stamp, _known(fence))
    return call._replace(script=scripts.EXTEND_RECORDED, keys=call.keys + keys.grants, args=args)


def renew(leases: Sequence[tuple[Keys, str, float, int | None]], fence_ttl: float, stamp: str) -> Call:
    """``leases``: the keys, the token, the TTL and the fence of each."""
    keys: list[str] = []
    args = [wire.milliseconds(fence_ttl), _life(fence_ttl), stamp]
    for where, token, ttl, fence in leases:
        keys += where.locks + where.fences + where.grants
        args += (str(len(where.locks)), token, wire.milliseconds(ttl), _known(fence))
    return wire.Call(scripts.RENEW_RECORDED, tuple(keys), tuple(args), wire.renewed(len(leases)))


def repair(keys: Keys, token: str, ttl: float, fence: int | None, fence_ttl: float) -> Call:
    call = wire.repair(keys, token, ttl, fence, fence_ttl)
    return call._replace(script=scripts.REPAIR_RECORDED, keys=call.keys + keys.grants)


def release(keys: Keys, token: str, keep: float = 0.0, fence: int | None = None) -> Call:
    """``fence``: of the lease that is released; None: it is a rollback, or a lease whose fence is not known."""
    call = wire.release(keys, token, keep)
    args = (token, _known(fence), *call.args[1:])
    return wire.Call(scripts.RELEASE_RECORDED, keys.locks + keys.grants, args, call.usual)


def occupy(group: Keys, asked: Slots, keys: Keys, token: str, ttl: float, proposal: int, fence_ttl: float) -> Call:
    call = wire.occupy(group, asked, keys, token, ttl, proposal, fence_ttl)
    args = (*call.args[:5], _life(fence_ttl), *call.args[5:])
    return call._replace(script=scripts.OCCUPY_RECORDED, keys=call.keys + group.grants, args=args)


def vacate(group: str, asked: Slots, keys: Keys, token: str, keep: float = 0.0, fence: int | None = None) -> Call:
    call = wire.vacate(group, asked, keys, token, keep)
    args = (*call.args[:3], _known(fence), *call.args[3:])
    return call._replace(script=scripts.VACATE_RECORDED, keys=call.keys + keys.grants, args=args)


def read_flagged(value: Any) -> tuple[int, Records, tuple[float, ...]] | None:
    """The fence, the records, and what `wire.Held` has of slots; None: no record was shown, see `wire.read_acquire`."""
    match value:
        case [3, bytes(fence), list(record), list(left)] if all(type(one) is int for one in left):
            return wire.read_exceeded(fence), dict([_record(record)]), wire.read_slots(left)
        case [3, bytes(fence), list(first), *more]:
            return wire.read_exceeded(fence), dict(map(_record, (first, *more))), ()
    return None


def _record(value: Any) -> tuple[int, Record]:
    match value:
        case [int(which), bytes(stamp), int(ttl), bytes(token)] if which > 0 < ttl:
            return which - 1, Record(stamp.decode("ascii"), token.decode(), wire.seconds(ttl))
    raise wire.BadReply(f"unexpected record {value!r:.80}")


def _life(fence_ttl: float) -> str:
    return wire.milliseconds(max(LIFE, fence_ttl))


def _known(fence: int | None) -> str:
    return "" if fence is None else str(fence)
