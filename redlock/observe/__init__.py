"""Metrics and traces: observers to pass as ``Masters(observer=...)``.

    from redlock.observe.prometheus import PrometheusObserver       # extra: prometheus
    from redlock.observe.otel import OpenTelemetryObserver          # extra: otel
    from redlock.observe.traces import TraceObserver                # extra: otel

    masters = Masters(urls, observer=all_of(PrometheusObserver(), TraceObserver()))

The first two measure the same things. The names are the same, as far as the conventions of the two systems agree; the
table is in `redlock.observe._measures`. One observer may serve any number of `Masters` and `AsyncMasters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redlock import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redlock import Event

__all__ = ["all_of"]


def all_of(*observers: Callable[[Event], object]) -> Callable[[Event], None]:
    """One observer that calls each of these with every event, in this order, even if an earlier one raises.

    Errors of the observers are raised together at the end, as an ExceptionGroup. `Masters` logs it.

    Raises:
        ConfigurationError: if one of them is not a function of an event.
    """
    for observer in observers:
        if not callable(observer):
            raise ConfigurationError(f"all_of({observer!r}): allowed are functions that take an event")

    def tell(event: Event) -> None:
        errors = []
        for observer in observers:
            try:
                observer(event)
            except Exception as error:  # noqa: BLE001 - of a user's function; the others get the event all the same
                errors.append(error)
        if errors:
            raise ExceptionGroup("observers failed", errors)

    return tell
