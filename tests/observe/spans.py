"""A `TraceObserver`, and its spans as an exporter gets them."""

from __future__ import annotations

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redlock.observe.traces import TraceObserver


class _Started(SpanProcessor):
    def __init__(self):
        self.names: list[str] = []

    def on_start(self, span, parent_context=None):
        self.names.append(span.name)


class Spans:
    """``observer`` makes spans with ``provider``; those that have ended are found by name."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._started = _Started()
        self.provider.add_span_processor(self._started)
        self.tracer = self.provider.get_tracer("a program")
        self.observer = TraceObserver(self.provider)

    def all(self, name):
        """The spans of that name, the one that ended first in front."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def started(self):
        """The names of all spans that were begun, whether they have ended or not."""
        return self._started.names

    def one(self, name):
        (span,) = self.all(name)
        return span


def events(span, name):
    """The attributes of the events of that name."""
    return [dict(event.attributes or {}) for event in span.events if event.name == name]


def under(span, parent):
    """Whether ``span`` is a child of ``parent``, in its trace."""
    context, mine = parent.get_span_context(), span.context
    assert mine is not None
    return span.parent is not None and span.parent.span_id == context.span_id and mine.trace_id == context.trace_id


def linked(span, other):
    assert other.context is not None
    return [link.context.span_id for link in span.links] == [other.context.span_id]
