"""How much a server may announce in one answer, however its bytes are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from redlock._core.sizes import BYTES, LINE, VALUES, Sizes, TooMuch
from tests.properties.profile import PROPERTY

ANSWERS = [
    b"+OK\r\n", b":17\r\n", b"-ERR no\r\n", b"$-1\r\n", b"*-1\r\n", b"$0\r\n\r\n", b"*0\r\n", b"$11\r\n*1000000000\r\n",
    b"$14\r\n$536870911\r\nab\r\n", b"*2\r\n$3\r\n$99\r\n*2\r\n:1\r\n$-1\r\n", b"%1\r\n+a\r\n:1\r\n", b"_\r\n", b"\r\n",
    b"*3\r\n$1\r\na\r\n$2\r\n\r\n\r\n:1\r\n", b"$40\r\n" + b"0f" * 20 + b"\r\n",
    b"*4\r\n:1\r\n:-2\r\n$-1\r\n+x*9999999\r\n",
]  # fmt: skip


@PROPERTY
@given(st.lists(st.sampled_from(ANSWERS), max_size=8), st.lists(st.integers(0, 200), max_size=20))
def test_answers_are_taken_however_they_are_cut_and_whatever_is_in_their_strings(answers, cuts):
    data = b"".join(answers)
    sizes = Sizes()
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for begin, end in itertools.pairwise(places):
        sizes.add(data[begin:end])
    with pytest.raises(TooMuch, match="1000000000 values"):  # it still knows where an answer begins
        sizes.add(b"*1000000000\r\n")


@pytest.mark.parametrize(("data", "says"), [
    (b"$%d\r\n" % (BYTES + 1), f"an answer of {BYTES + 1} bytes, allowed are {BYTES}"),
    (b"$536870911\r\n", "536870911 bytes"),
    (b"*%d\r\n" % (VALUES + 1), f"an answer of {VALUES + 1} values, allowed are {VALUES}"),
    (b"*2\r\n*1000000000\r\n", "1000000001 values"),
    (b"%50001\r\n", "100002 values"),
    (b">1000000000\r\n", "values"),
    (b"*2\r\n$%d\r\n%s\r\n$1\r\n" % (BYTES, bytes(BYTES)), f"{BYTES + 1} bytes"),
    (b"*1\r\n:1\r\n*1000000000\r\n", "1000000000 values"),
    (b"*9\r\n" + b":1\r\n" * 8 + b"*1000000000\r\n", "1000000000 values"),
    (b"$40\r\n" + b"0f" * 20 + b"\r\n*1000000000\r\n", "1000000000 values"),
    (b"+" + bytes(LINE), "a line of more than"),
    (b"$1_000\r\n", "is no size"),
    (b"*?\r\n", "is no size"),
    (b"$\r\n", "is no size"),
    (b"*99999999999999999999\r\n", "is no size"),
])  # fmt: skip
@pytest.mark.parametrize("before", [b"", b"+OK\r\n", b"*1\r\n$2\r\nab\r\n"])
def test_more_is_refused_before_it_came(data, says, before):
    with pytest.raises(TooMuch, match=says):
        Sizes().add(before + data)


def test_what_is_allowed_is_allowed_for_every_answer_anew():
    sizes = Sizes()
    for _ in range(3):
        sizes.add(b"$%d\r\n%s\r\n" % (BYTES, bytes(BYTES)))
        sizes.add(b"*%d\r\n" % VALUES + b":1\r\n" * VALUES)
        sizes.add(b"+" + b"x" * (LINE - 1) + b"\r\n")
