"""What a master says, in the bytes of the protocol."""

from __future__ import annotations

from typing import Any

from redlock._core.outcomes import ErrorReply


def encoded(value: Any) -> bytes:
    match value:
        case None:
            return b"$-1\r\n"
        case bool():
            return b"#%c\r\n" % "ft"[value].encode()
        case int():
            return b":%d\r\n" % value
        case float():
            return b",%r\r\n" % value
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case str():
            return b"+%b\r\n" % value.encode()
        case ErrorReply():
            return b"-%b\r\n" % value.text.encode()
        case dict():
            return b"%%%d\r\n" % len(value) + b"".join(encoded(one) for item in value.items() for one in item)
    return b"*%d\r\n" % len(value) + b"".join(map(encoded, value))
