"""Names from arguments (R30): what is made of a call, and what is refused, where it is decorated and where it is called."""

from __future__ import annotations

import enum
import functools
import inspect
import json
from collections import deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from redlock import AsyncMasters, ConfigurationError, Masters
from redlock._lock.naming import names_for
from tests.owners import proves

pytestmark = proves("R30")

URLS = [f"redis://10.0.0.{i}:6379" for i in range(1, 4)]


@dataclass(repr=False)
class Invoice:
    id: Any


def pay(invoice: Invoice, amount: int = 7, *parts: str, currency: str = "EUR", **notes: str) -> None: ...


class Account:
    number = 5

    def close(self, reason: str = "none") -> None: ...


class NoText:
    pass


@dataclass
class Point:
    x: int


class Titled:
    def __str__(self):
        return "a title"


class Mixed(str, enum.Enum):  # noqa: UP042 - as many programs still have them
    DAY = "day"


class MixedNumber(int, enum.Enum):
    ONE = 1


class Plain(enum.Enum):
    DAY = "day"


NOON = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
# A queue that speaks JSON delivers none of them, and what `repr` writes of them is for people.
WITHOUT_TEXT = [
    (range(3), "range"), (deque([1]), "deque"), (Invoice, "type"), (..., "ellipsis"), (1j, "complex"), (Point(1), "Point"),
]  # fmt: skip

# -- templates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("template", "arguments", "options", "name"), [
    ("invoice:{invoice.id}", (Invoice(42),), {}, "invoice:42"),
    ("invoice:{invoice.id}", (), {"invoice": Invoice("a")}, "invoice:a"),
    ("{amount}:{currency}", (Invoice(1),), {}, "7:EUR"),
    ("{amount}:{currency}", (Invoice(1), 8), {"currency": "USD"}, "8:USD"),
    ("{amount:04d}", (Invoice(1),), {}, "0007"),
    ("{currency!r}", (Invoice(1),), {}, "'EUR'"),
    ("{invoice.id[b]}", (Invoice({"b": "c"}),), {}, "c"),
    ("{invoice.id[0]}", (Invoice(["x"]),), {}, "x"),
    ("{parts[1]}:{notes[city]}", (Invoice(1), 2, "p", "q"), {"city": "Bern"}, "q:Bern"),
    ("{{{amount}}}:x", (Invoice(1),), {}, "{7}:x"),  # a hash tag, which the template has and no value
    ("{invoice.id}", (Invoice("Käse ✓ 1"),), {}, "Käse ✓ 1"),
    ("{invoice.id}", (Invoice(0),), {}, "0"),
    ("{invoice.id}", (Invoice(False),), {}, "0"),
    # A format says what is meant.
    ("{invoice.id:.2f}", (Invoice(1.0),), {}, "1.00"),
    ("{invoice.id:.2f}", (Invoice(1),), {}, "1.00"),
    ("{invoice.id:%Y-%m-%d}", (Invoice(NOON),), {}, "2026-01-02"),
    ("{invoice.id.value}", (Invoice(Plain.DAY),), {}, "day"),
    ("{invoice.id[1]}", (Invoice((1, 2)),), {}, "2"),
    ("{invoice.id:>4}", (Invoice(Mixed.DAY),), {}, " day"),
    ("{invoice.id:03d}", (Invoice(MixedNumber.ONE),), {}, "001"),
    # What has a text of its own.
    *(("{invoice.id}", (Invoice(value),), {}, str(value))
      for value in (UUID(int=7), Decimal("1.50"), Path("/srv"), Titled(), timedelta(1), Fraction(1, 3))),
    # What has none is written by `repr`, if the template says so.
    *(("{invoice.id!r}", (Invoice(value),), {}, repr(value)) for value, _ in WITHOUT_TEXT),
    ("x" * 511 + "{invoice}", (1,), {}, "x" * 511 + "1"),  # there is room for one character
])  # fmt: skip
def test_a_template(template, arguments, options, name):
    assert names_for(template, pay)(arguments, options) == (name,)


def test_the_object_of_a_method_is_an_argument():
    assert names_for("{self.number}:{reason}", Account.close)((Account(),), {}) == ("5:none",)


def test_what_a_partial_has_filled_in():
    assert names_for("{amount}", functools.partial(pay, amount=9))((Invoice(1),), {}) == ("9",)


@pytest.mark.parametrize(("template", "value", "why"), [
    *(("x:{invoice.id}", value, f"{{invoice.id}} is {value!r}: allowed is")
      for value in ("", " ", "\t", "a\nb", "\0", "\x7f", "\x85", "a{b", "a}b", None)),
    # What a queue may deliver as something else.
    *(("{invoice.id}", value, rf"{why}, .* {advice}") for value, why, advice in (
        (1.0, "a float", "{invoice.id:.2f}"), (0.5, "a float", "{invoice.id:.2f}"),
        (Plain.DAY, "a Plain", "{invoice.id.value}"), (b"day", "bytes", "decode it"),
        ((1, 2), "a tuple", "{invoice.id[0]}"), ([1, 2], "a list", "{invoice.id[0]}"), ({"day"}, "a set", "a function"),
        ({}, "a dict", "a function"), (NOON, "a datetime", "{invoice.id:%Y-%m-%dT%H:%M}"))),
    # A format that writes 1 and 1.0 as two names says nothing.
    *((template, 1.0, "a float, and 1.0 may be delivered as 1")
      for template in ("{invoice.id:>5}", "{invoice.id:,}", "{invoice.id!s:>5}", "{invoice.id!r}")),
    # Every day would have one lock.
    *((template, value, "writes nothing of it: say what, with codes as %Y or %H")
      for template in ("day:{invoice.id:>12}", "day:{invoice.id:s}") for value in (date(2026, 1, 2), time(3, 4), NOON)),
    # Its format does not write it.
    *((template, value, f"{{invoice.id}} is a {type(value).__name__} that .* does not") for template, value in (
        ("{invoice.id:.2f}", "seven"), ("{invoice.id:%Y}", "2026-01-02"), ("{invoice.id:>5}", Invoice(1)))),
    pytest.param("{invoice.id}", 10**5000, "{invoice.id} is a int that .* does not", id="more digits than Python prints"),
    # An address in memory excludes nobody.
    *(("{invoice.id}", value, "{invoice.id} is <.* at 0x.*>: .* memory address")
      for value in (NoText(), NoText().__str__, lambda: None)),
    *(("{invoice.id}", value, f"a {kind}, which has no text of its own") for value, kind in WITHOUT_TEXT),
    ("{invoice.id}", "x" * 600, "600 bytes of UTF-8"),
])  # fmt: skip
def test_a_value_that_makes_no_name(template, value, why):
    with pytest.raises(ConfigurationError) as caught:
        names_for(template, pay)((Invoice(value),), {})
    found = str(caught.value)
    for part in why.split(".*"):
        head, part_of_it, found = found.partition(part)
        assert part_of_it, (part, head)


@pytest.mark.parametrize(("templates", "values"), [
    # A web process locks by a member of an enumeration; the queue, which speaks JSON, delivers its value.
    (["", "!s", "!r"], [(one, json.loads(json.dumps(one)))
                        for one in (Mixed.DAY, MixedNumber.ONE, "x", 1, 2**60, True, False)]),
    # What is true in a program may be a 1 where it comes from: MySQL and SQLite have no other truth.
    (["", "!s", "!r", ":d"], [(True, 1), (False, 0)]),
    # A number that is delivered without its point.
    ([":.2f", ":g", ":.1e", ":%"], [(one, int(one)) for one in (1.0, 0.0, -0.0)]),
])  # fmt: skip
def test_a_worker_that_gets_the_value_from_a_queue_also_without_its_point_waits_for_the_same_lock(templates, values):
    for how in templates:
        names = names_for(f"{{invoice.id{how}}}", pay)
        for value, delivered in values:
            assert names((Invoice(value),), {}) == names((Invoice(delivered),), {})


@pytest.mark.parametrize(("template", "why"), [
    ("invoice", r"names no argument.*lock\('invoice'\)"),
    ("{{invoice}}", "names no argument"),
    ("{bill.id}", r"'bill'.*arguments are invoice, amount, parts, currency, notes"),
    ("{invoice.id}:{bill}", "'bill'"),
    ("{}", "''"),
    ("{0}", "'0'"),
    ("{city}", "'city'"),  # it would be in `notes`, or not
    ("{invoice.id", "expected '}'"),
    ("invoice}", "Single '}'"),
    ("{invoice.}", r"\{invoice\.\}"),
    ("{invoice!x}", "!x"),
    ("{amount:{currency}}", r"\{currency\}"),
])  # fmt: skip
def test_a_template_that_cannot_be_right(template, why):
    with pytest.raises(ConfigurationError, match=why) as caught:
        names_for(template, pay)
    assert repr(template) in str(caught.value)


@pytest.mark.parametrize(("text", "why"), [
    ("a\nb", "control character"),
    ("a\0b", "control character"),
    ("a\x85b", "control character"),
    ("\ud800", "cannot be encoded as UTF-8"),
    ("ü" * 256, "513 bytes of UTF-8"),
])  # fmt: skip
def test_a_template_whose_own_text_makes_no_name_is_refused_where_it_stands(text, why):
    with pytest.raises(ConfigurationError, match=rf"its (own|fixed) text .*{why}"):
        names_for(text + "{invoice}", pay)


@pytest.mark.parametrize("wrong", [None, 5, b"{invoice}", ["{invoice}"]])
def test_what_makes_no_names(wrong):
    with pytest.raises(ConfigurationError, match=r"allowed is a template, .* or a function"):
        names_for(wrong, pay)


# -- a function in place of a template -------------------------------------------------------------------


def test_a_function_gets_the_same_arguments():
    seen: list[Any] = []

    def naming(*arguments: Any, **options: Any) -> str:
        seen.append((arguments, options))
        return "a"

    invoice = Invoice(1)
    assert names_for(naming, pay)((invoice,), {"city": "Bern"}) == ("a",)
    assert seen == [((invoice, 7), {"currency": "EUR", "city": "Bern"})]


@pytest.mark.parametrize("made", ["", " ", "a\nb", "{a}:b", ["a", ""], ["a", "b}"], [], ["a", "a"], None, 5, ["a", 5]])
def test_what_is_no_name(made):
    with pytest.raises(ConfigurationError, match=r"allowed|at least one|twice"):
        names_for(lambda *_, **__: made, pay)((Invoice(1),), {})


@pytest.mark.parametrize("made", [Mixed.DAY, [Mixed.DAY]])
def test_a_function_that_returns_a_member_of_an_enumeration(made):
    assert repr(names_for(lambda *_, **__: made, pay)((Invoice(1),), {})) == "('day',)"


async def coroutine_function(*_: object) -> str:
    return "a"


def test_a_name_is_not_awaited():
    with pytest.raises(ConfigurationError, match=r"coroutine_function.* is a coroutine function"):
        names_for(coroutine_function, pay)


# -- the arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "options"), [((), {}), ((1,), {"invoice": 1})])
def test_arguments_that_do_not_fit(arguments, options):
    """As Python says it; and nothing runs without its lock."""
    with pytest.raises(TypeError, match=r"^pay: .*'invoice'"):
        names_for("{invoice}", pay)(arguments, options)


def test_a_function_whose_arguments_nobody_knows():
    with pytest.raises(ConfigurationError, match=r"arguments of .*type.* are not known"):
        names_for("{x}", type)


def test_errors_of_the_users_own_code_stay_what_they_are():
    with pytest.raises(AttributeError, match="no attribute 'id'"):
        names_for("{invoice.id}", pay)((None,), {})
    with pytest.raises(ZeroDivisionError):
        names_for(lambda *_, **__: 1 // 0, pay)((Invoice(1),), {})


# -- where it is decorated -------------------------------------------------------------------------------


def body(job: str) -> str:
    return job


async def later(job: str) -> str:
    return job


WORLDS = [pytest.param(Masters, body, later, id="threads"), pytest.param(AsyncMasters, later, body, id="asyncio")]


@pytest.mark.parametrize(("kind", "right", "wrong"), WORLDS)
def test_what_cannot_be_decorated(kind, right, wrong):
    masters = kind(URLS)
    with pytest.raises(ConfigurationError, match="coroutine function"):
        masters.synchronized("{job}")(wrong)
    with pytest.raises(ConfigurationError, match="'bill'"):
        masters.synchronized("{bill}")(right)


@pytest.mark.parametrize(("kind", "right", "wrong"), WORLDS)
@pytest.mark.parametrize(("options", "why"), [
    ({"on_busy": "ignore"}, "on_busy='ignore': allowed are 'wait', 'raise' and 'skip'"),
    ({"on_busy": None}, "on_busy=None"),
    ({"on_busy": []}, "on_busy="),
    ({"busy": 0}, "busy=0 with on_busy='wait'"),
    ({"on_busy": "raise", "busy": 0}, "busy=0 with on_busy='raise'"),
    ({"on_busy": "skip", "timeout": -1}, "timeout=-1 with on_busy='skip'"),
    ({"on_busy": "raise", "timeout": -1}, "timeout=-1 with on_busy='raise'"),
    ({"timeout": "soon"}, "timeout='soon'"),
    ({"ttl": 0}, "ttl=0"),
])  # fmt: skip
def test_options_are_checked_before_there_is_a_function(kind, right, wrong, options, why):
    with pytest.raises(ConfigurationError, match=why):
        kind(URLS).synchronized("{job}", **options)


@pytest.mark.parametrize(("kind", "right", "wrong"), WORLDS)
def test_what_is_known_of_a_function_stays(kind, right, wrong):
    decorated = kind(URLS).synchronized("{job}")(right)
    assert decorated.__wrapped__ is right
    assert decorated.__name__ == right.__name__
    assert inspect.iscoroutinefunction(decorated) is inspect.iscoroutinefunction(right)
