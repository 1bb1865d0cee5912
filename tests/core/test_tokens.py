"""What the value of a key says of its owner (R27, R28): what we made, what the version before made, and what strangers write."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from redlock import ConfigurationError, options
from redlock._core.tokens import by_whom, owner_of, released_token
from tests.owners import proves
from tests.properties.profile import PROPERTY

pytestmark = proves("R27")

DIGITS = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize(("token", "owner"), [
    (DIGITS, ""),  # without an owner, and those of the version before
    (f"{DIGITS}:web-3/1234", "web-3/1234"),
    (f"{DIGITS}:a:b:c", "a:b:c"),
    (f"released:{DIGITS}:web-3/1234", "web-3/1234"),  # who had it (R28)
    (f"released:released:{DIGITS}:web", ""),
    (f"{DIGITS}:Zoë 鍵", "Zoë 鍵"),
    (f"{DIGITS}:{'é' * 32}", "é" * 32),
    (f"{DIGITS}:{'é' * 32}x", ""),  # 65 bytes
    (f"{DIGITS}:", ""),
    (f"{DIGITS}web", ""),
    (f"{DIGITS}:two\nlines", ""),
    (f"{DIGITS}:\x1b[2J", ""),
    (f"{DIGITS}:\u202eevil", ""),  # would be shown from right to left
    (f"{DIGITS[1:]}:web", ""),
    (f"{DIGITS.upper()}:web", ""),
    (f"{DIGITS}0:web", ""),
    ("web-3:1234", ""),
    ("", ""),
    (None, ""),
])  # fmt: skip
def test_what_is_an_owner(token, owner):
    assert owner_of(token) == owner


@PROPERTY
@given(st.text(max_size=80))
def test_what_may_be_given_is_what_is_read(text):
    try:
        options.owner(text)
    except ConfigurationError:
        assert owner_of(f"{DIGITS}:{text}") == ""
    else:
        assert owner_of(f"{DIGITS}:{text}") == text
        token = DIGITS + (text and f":{text}")
        assert options.token(token) == token


@pytest.mark.parametrize("token", [DIGITS, f"{DIGITS}:web-3/1234", f"{DIGITS}:a:b:c", f"{DIGITS}:{'é' * 32}"])
def test_a_lease_is_resumed_by_one_of_our_tokens(token):
    assert options.token(token) == token


@pytest.mark.parametrize("token", [
    f"released:{DIGITS}:web-3/1234",  # as a status shows it (R28)
    f"released:{DIGITS}",
    "shared:", "shared:full", "waiting:",  # what masters say of readers (R33)
    DIGITS.upper(), DIGITS[1:], f"{DIGITS}0", f" {DIGITS}", f"{DIGITS}\n",
    f"{DIGITS}:", f"{DIGITS}web", f"{DIGITS}:two\nlines", f"{DIGITS}:{'x' * 65}", f"{DIGITS}:\ud800",
    "somebody else's", "", b"0" * 40, 7,
])  # fmt: skip
def test_by_nothing_else_that_a_key_may_hold(token):
    with pytest.raises(ConfigurationError, match=r"^token=.*allowed is the token of a lease") as caught:
        options.token(token)
    assert repr(token)[:20] in str(caught.value)
    assert DIGITS not in str(caught.value), "whoever has all of it can release"


@pytest.mark.parametrize(("value", "allowed"), [
    ("x" * 65, "65 bytes of UTF-8, allowed are at most 64"),
    ("é" * 33, "66 bytes of UTF-8, allowed are at most 64"),
    ("two\nlines", "printable"),
    ("\x1b[31m", "printable"),
    ("\ud800", "printable"),
    (b"web", "not bytes"),
    (7, "not int"),
])  # fmt: skip
def test_what_may_not_be_one_is_refused_with_the_value_and_what_is_allowed(value, allowed):
    with pytest.raises(ConfigurationError, match=r"^owner=") as caught:
        options.owner(value)
    assert allowed in str(caught.value)
    assert repr(value)[:40] in str(caught.value)


@pytest.mark.parametrize(("token", "said"), [
    (f"{DIGITS}:web-3/1234", "by web-3/1234 (01234567…)"),
    (DIGITS, f"by {DIGITS}"),
    ("somebody", "by somebody"),
    ("somebody's", "by somebody…"),
    ('{"user": "ann"}', 'by {"user":…'),
    (f"{DIGITS}:two\nlines", "by 01234567…"),
    ("released:somebody's", "released by somebody…, and kept from others"),
    ("ticket:somebody's", "for somebody…, whose turn it is"),
    (f"released:{DIGITS}:web", "released by web (01234567…), and kept from others"),
    (f"released:{DIGITS}", f"released by {DIGITS}, and kept from others"),
    ("released:", "by released:"),
    (f"expired:{DIGITS}", "by nobody: the last lease may still be valid; free once it must have ended"),
])  # fmt: skip
def test_in_texts_it_is_short_and_still_tells_two_attempts_apart(token, said):
    assert by_whom(token) == said


@pytest.mark.parametrize(("value", "token"), [
    (f"released:{DIGITS}:web", f"{DIGITS}:web"),
    (f"{DIGITS}:web", ""),
    ("released:", ""),
    ("", ""),
    (None, ""),
])  # fmt: skip
def test_what_a_release_may_have_left(value, token):
    assert released_token(value) == token
