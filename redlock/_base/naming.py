"""Names from arguments (R30): what a decorated function is called with makes the names of its lock.

Also considered: to take every value as it is.  But an empty one, or an address in memory, makes a lock that excludes
too many calls or none at all, and nobody would notice.  A value with braces would move the hash tag of the key.
"""

from __future__ import annotations

import functools
import inspect
import re
from string import Formatter
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from redlock import options
from redlock._base import decorated
from redlock.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Naming: TypeAlias = str | Callable[..., str | Sequence[str]]
    Arguments: TypeAlias = Mapping[str, Any]

_FORMATTER = Formatter()
_FIELD = re.compile(r"(?P<argument>[^.\[\]]*)(?:\.[^.\[\]]+|\[[^\]]+\])*")
_CONVERSIONS = (None, "r", "s", "a")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f{}]")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>")
_ALLOWED = "allowed is text that is not empty, without control characters and without braces"


def names_for(
    naming: object, function: Callable[..., object]
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], tuple[str, ...]]:
    """A function that makes names of the positional and the named arguments of a call of ``function``.

    ``naming`` is a template, in which each field begins with the name of an argument, or a function that is called with
    the same arguments.  Defaults are filled in.

    The function raises TypeError if the arguments do not fit, and ConfigurationError if a value makes no name.

    Raises:
        ConfigurationError: ``naming`` is neither; the template names no argument, or one that ``function`` does not
            have; the arguments of ``function`` are not known.
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


def _fields(template: str, function: str, parameters: Arguments) -> tuple[_Part, ...]:
    """The parts of ``template``, checked against the arguments of ``function``."""
    parts: list[_Part] = []
    try:
        for text, field, spec, conversion in _FORMATTER.parse(template):
            if field is not None:
                _check_field(template, field, spec or "", conversion, function, parameters)
            parts.append((text, None if field is None else (field, conversion, spec or "")))
    except ConfigurationError:
        raise
    except ValueError as error:
        raise ConfigurationError(f"name={options.shown(template)}: {error}") from None
    if all(field is None for _, field in parts):
        raise ConfigurationError(
            f"name={options.shown(template)} names no argument of {function}: for a name that is always the same, "
            f"use lock({options.shown(template)})"
        )
    return tuple(parts)


def _check_field(
    template: str, field: str, spec: str, conversion: str | None, function: str, parameters: Arguments
) -> None:
    def refuse(why: str) -> NoReturn:
        raise ConfigurationError(f"name={options.shown(template)}: {why}")

    path = _FIELD.fullmatch(field)
    if path is None:
        refuse(f"{{{field}}} is no field: allowed are as {{invoice}}, {{invoice.id}} and {{invoice[id]}}")
    if path["argument"] not in parameters:
        refuse(f"{function} has no argument {path['argument']!r}: its arguments are {', '.join(parameters) or 'none'}")
    if conversion not in _CONVERSIONS:
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
    text = ""  # None is no text either
    if value is not None:
        text = format(_FORMATTER.convert_field(value, conversion), spec)
    if _ADDRESS.search(text):
        raise ConfigurationError(
            f"{field} is {options.shown(text)[1:-1]}: that has an address in memory, which is another one in each "
            "process: name an attribute of it"
        )
    _check(field, text, text if value is not None else value)
    return text


def _from_function(function: str, naming: Callable[..., object], bound: inspect.BoundArguments) -> tuple[str, ...]:
    names = options.names(naming(*bound.args, **bound.kwargs))
    for name in names:
        _check(f"{function}: the name of its lock", name, name)
    return names


def _check(what: str, text: str, value: object) -> None:
    if not text or text.isspace() or _FORBIDDEN.search(text):
        raise ConfigurationError(f"{what} is {options.shown(value)}: {_ALLOWED}")
