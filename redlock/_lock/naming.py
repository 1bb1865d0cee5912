"""Names from arguments (R30): the arguments of a call of a decorated function make the names of its lock.

An empty value, or an address in memory, would make a lock that excludes too many calls or none at all, unnoticed.  A
value with braces would move the hash tag of the key.

A value makes the name that it makes after a queue that speaks JSON has delivered it.  So a program that locks by a
member of an enumeration, and a worker that gets its value, wait for each other.  True makes the name of
1.  A value that a queue may deliver as something else is refused, unless the template says how it is written.
"""

from __future__ import annotations

import functools
import inspect
import re
from datetime import date, datetime, time
from enum import Enum
from string import Formatter
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from redlock import options
from redlock._lock import decorated
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Naming: TypeAlias = str | Callable[..., str | Sequence[str]]

_FORMATTER = Formatter()
_FIELD = re.compile(r"(?P<argument>[^.\[\]]*)(?:\.[^.\[\]]+|\[[^\]]+\])*")
_WRITTEN = tuple("eEfFgGn%")  # a format that ends with one of these writes 1 and 1.0 alike
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_FORBIDDEN = re.compile(rf"{_CONTROL.pattern}|[{{}}]")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>")
_ALLOWED = "allowed is text that is not empty, without control characters and without braces"


def names_for(
    naming: object, function: Callable[..., object]
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], tuple[str, ...]]:
    """A function that makes names of the positional and the named arguments of a call of ``function``.

    It raises TypeError if the arguments do not fit, and ConfigurationError if a value makes no name.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"the arguments of {decorated.shown(function)} are not known: {error}") from None
    shown = decorated.shown(function)
    make: Callable[[inspect.BoundArguments], tuple[str, ...]]
    if isinstance(naming, str):
        make = functools.partial(_from_template, shown, _fields(naming, shown, signature.parameters))
    elif not callable(naming):
        raise ConfigurationError(
            f"name={options.shown(naming)}: allowed is a template, as 'invoice:{{invoice.id}}', or a function that "
            "returns a name or several"
        )
    elif decorated.runs_as(naming, inspect.iscoroutinefunction):
        raise ConfigurationError(f"{decorated.shown(naming)} is a coroutine function: a name is not awaited")
    else:
        make = functools.partial(_from_function, shown, naming)

    def names(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[str, ...]:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError as error:
            raise TypeError(f"{shown}: {error}") from None
        bound.apply_defaults()
        return make(bound)

    return names


# A text, and the field behind it: its name, conversion and format, or None at the end of the template.
_Part: TypeAlias = tuple[str, tuple[str, str | None, str] | None]


def _fields(template: str, function: str, parameters: Iterable[str]) -> tuple[_Part, ...]:
    parts: list[_Part] = []
    try:
        parsed = list(_FORMATTER.parse(template))
    except ValueError as error:
        raise ConfigurationError(f"name={options.shown(template)}: {error}") from None
    for text, field, spec, conversion in parsed:
        if field is not None:
            _check_field(template, field, spec or "", conversion, function, parameters)
        parts.append((text, None if field is None else (field, conversion, spec or "")))
    if all(field is None for _, field in parts):
        raise ConfigurationError(
            f"name={options.shown(template)} names no argument of {function}: for a name that is always the same, "
            f"use lock({options.shown(template)})"
        )
    _check_own_text(template, parts)
    return tuple(parts)


def _check_own_text(template: str, parts: Iterable[_Part]) -> None:
    shortest = "".join(text if field is None else f"{text}x" for text, field in parts)
    if _CONTROL.search(shortest):
        raise ConfigurationError(f"name={options.shown(template)}: its own text has a control character")
    try:
        options.names(shortest)
    except ConfigurationError as error:
        why = error.message.partition(": ")[2]
        raise ConfigurationError(f"name={options.shown(template)}: its fixed text makes no valid name: {why}") from None


def _check_field(
    template: str, field: str, spec: str, conversion: str | None, function: str, parameters: Iterable[str]
) -> None:
    def refuse(why: str) -> NoReturn:
        raise ConfigurationError(f"name={options.shown(template)}: {why}")

    path = _FIELD.fullmatch(field)
    if path is None:
        refuse(f"{{{field}}} is no field: allowed are as {{invoice}}, {{invoice.id}} and {{invoice[id]}}")
    if path["argument"] not in parameters:
        refuse(f"{function} has no argument {path['argument']!r}: its arguments are {', '.join(parameters) or 'none'}")
    if conversion not in (None, "r", "s", "a"):
        refuse(f"{{{field}!{conversion}}}: allowed are !r, !s and !a")
    if "{" in spec:
        refuse(f"a format that is an argument itself, {spec}, is not allowed: use a function")


def _from_template(function: str, parts: Iterable[_Part], bound: inspect.BoundArguments) -> tuple[str, ...]:
    made = ""
    for text, field in parts:
        made += text
        if field is not None:
            path, conversion, spec = field
            value = _FORMATTER.get_field(path, (), bound.arguments)[0]
            made += _text(f"{function}: {{{path}}}", value, conversion, spec)
    return options.names(made)


def _text(field: str, value: Any, conversion: str | None, spec: str) -> str:
    """``value`` as a part of a name. Raises ConfigurationError if another process might make another name of it."""
    text = ""  # None is no text either
    if value is not None:
        delivered = _delivered(field, value, conversion, spec)
        try:
            text = format(_FORMATTER.convert_field(delivered, conversion), spec)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{field} is a {type(value).__name__} that {spec!r} does not write: {error}"
            ) from error
    if _ADDRESS.search(text):
        raise ConfigurationError(
            f"{field} is {options.shown(text)[1:-1]}: its text has a memory address, so every process would use "
            "another name: name an attribute of it"
        )
    if conversion not in ("r", "a") and not _has_text(value, spec):
        raise ConfigurationError(
            f"{field} is {options.shown(value)}: a {type(value).__name__}, which has no text of its own: name an "
            "attribute or an item of it"
        )
    _check(field, text, text if value is not None else value)
    return text


def _has_text(value: object, spec: str) -> bool:
    """Whether the class has a text of its own, and not only that of `repr`. JSON has a text of such objects."""
    if value is None or isinstance(value, (str, int, float)):
        return True
    own, of_object = (type(value).__format__, object.__format__) if spec else (type(value).__str__, object.__str__)
    return own is not of_object


def _delivered(field: str, value: Any, conversion: str | None, spec: str) -> Any:
    """``value`` as a queue that speaks JSON delivers it; ``conversion`` and ``spec``: how the template writes it."""
    inside = field.rpartition("{")[2].removesuffix("}")
    if isinstance(value, str):
        return options.plain(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (bytes, bytearray)):
        advice = "bytes, which JSON does not have: decode it"
    elif isinstance(value, (list, tuple)):
        advice = f"a {type(value).__name__}, and may be delivered as another kind: name an item, as {{{inside}[0]}}"
    elif isinstance(value, (set, frozenset, dict)):
        advice = f"a {type(value).__name__}, whose order is not fixed: use a function that makes the name"
    elif isinstance(value, float) and (conversion or not spec.endswith(_WRITTEN)):
        advice = f"a float, and 1.0 may be delivered as 1: say how it is written, as {{{inside}:.2f}}"
    elif isinstance(value, datetime) and not spec:
        advice = f"a datetime, which each queue writes in its own way: say how, as {{{inside}:%Y-%m-%dT%H:%M}}"
    elif isinstance(value, (date, time)) and spec and not conversion and "%" not in spec:
        advice = f"a {type(value).__name__}, and {spec!r} writes nothing of it: say what, with codes as %Y or %H"
    elif isinstance(value, Enum) and not isinstance(value, float):
        advice = f"a {type(value).__name__}, and may be delivered as its value: write {{{inside}.value}}"
    else:
        return float(value) + 0.0 if isinstance(value, float) else value  # -0.0 may be delivered as 0
    raise ConfigurationError(f"{field} is {options.shown(value)}: {advice}")


def _from_function(function: str, naming: Callable[..., object], bound: inspect.BoundArguments) -> tuple[str, ...]:
    names = options.names(naming(*bound.args, **bound.kwargs))
    for name in names:
        _check(f"{function}: the name of its lock", name, name)
    return names


def _check(what: str, text: str, value: object) -> None:
    if not text or text.isspace() or _FORBIDDEN.search(text):
        raise ConfigurationError(f"{what} is {options.shown(value)}: {_ALLOWED}")
