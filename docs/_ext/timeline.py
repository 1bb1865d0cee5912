"""``timeline``: who does what when, drawn from a few lines of text.

    lanes: client A, master 1
    client A: hold 1-6 holds the lock       a bar, from time 1 to 6; also `stop` and `off`
    client A: tick 6 valid_until            a mark
    client A 1 -> master 1 2: acquire       a message; `-x` is one that is lost

Drawn here and not by a program, so that the pages build anywhere; the colours are those of the theme.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_LANES = re.compile(r"lanes:\s*(.+)")
_BAR = re.compile(r"(.+?):\s*(hold|stop|off)\s+([\d.]+)-([\d.]+)\s*(.*)")
_TICK = re.compile(r"(.+?):\s*tick\s+([\d.]+)\s*(.*)")
_ARROW = re.compile(r"(.+?)\s+([\d.]+)\s*(->|-x)\s*(.+?)\s+([\d.]+)(?::\s*(.*))?")

_LOST = 0.88  # of the way
_LABEL, _UNIT, _LANE, _TOP, _BAR_HEIGHT = 122, 62, 54, 28, 22


class Drawing:
    """Lanes from top to bottom, time from left to right."""

    def __init__(self, text: str) -> None:
        self._lanes: list[str] = []
        self._back: list[str] = []
        self._front: list[str] = []
        self._end = 0.0
        for line in filter(None, map(str.strip, text.splitlines())):
            self._read(line)

    def _read(self, line: str) -> None:
        if match := _LANES.fullmatch(line):
            self._lanes = [name.strip() for name in match[1].split(",")]
        elif match := _BAR.fullmatch(line):
            self._bar(self._y(match[1]), match[2], self._x(match[3]), self._x(match[4]), match[5])
        elif match := _TICK.fullmatch(line):
            self._tick(self._x(match[2]), self._y(match[1]), match[3])
        elif match := _ARROW.fullmatch(line):
            start = self._x(match[2]), self._y(match[1])
            end = self._x(match[5]), self._y(match[4])
            self._arrow(start, end, match[6] or "", lost=match[3] == "-x")
        else:
            raise ValueError(f"timeline: cannot read {line!r}")

    def _x(self, time: str) -> float:
        self._end = max(self._end, float(time))
        return _LABEL + float(time) * _UNIT

    def _y(self, lane: str) -> float:
        if lane not in self._lanes:
            raise ValueError(f"timeline: no lane {lane!r} in {self._lanes}")
        return _TOP + self._lanes.index(lane) * _LANE

    def _bar(self, y: float, kind: str, left: float, right: float, text: str) -> None:
        self._back.append(
            f'<rect class="tl-{kind}" x="{left:g}" y="{y - _BAR_HEIGHT / 2:g}" width="{right - left:g}" '
            f'height="{_BAR_HEIGHT}" rx="3"/>'
        )
        self._text((left + right) / 2, y + 4, text, "tl-inside")

    def _tick(self, x: float, y: float, text: str) -> None:
        self._front.append(f'<path class="tl-tick" d="M{x:g} {y - 15:g}V{y + 15:g}"/>')
        self._text(x, y - 18, text, "tl-note")

    def _arrow(self, start: tuple[float, float], end: tuple[float, float], text: str, *, lost: bool) -> None:
        (x1, y1), (x2, y2) = start, end
        down = 1 if y2 > y1 else -1
        y1, y2 = y1 + down * 3, y2 - down * 3
        if lost:
            x2, y2 = x1 + (x2 - x1) * _LOST, y1 + (y2 - y1) * _LOST
            self._front.append(f'<path class="tl-lost" d="M{x2 - 5:g} {y2 - 5:g}l10 10M{x2 + 5:g} {y2 - 5:g}l-10 10"/>')
        head = "" if lost else ' marker-end="url(#tl-head)"'
        self._front.append(f'<path class="tl-arrow" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"{head}/>')
        if text:
            # Between its own lane and the next one, where no bar is.
            part = min(1.0, _LANE / abs(y2 - y1)) / 2
            self._text(x1 + (x2 - x1) * part + 7, y1 + (y2 - y1) * part + 4, text, "tl-message")

    def _text(self, x: float, y: float, text: str, kind: str) -> None:
        if text:
            self._front.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def svg(self, title: str) -> str:
        width = _LABEL + self._end * _UNIT + 30
        height = _TOP + (len(self._lanes) - 1) * _LANE + 30
        lanes = [
            f'<path class="tl-lane" d="M{_LABEL} {self._y(lane):g}H{width - 6:g}"/>'
            f'<text class="tl-name" x="{_LABEL - 12}" y="{self._y(lane) + 4:g}">{escape(lane)}</text>'
            for lane in self._lanes
        ]
        head = (
            '<defs><marker id="tl-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="tl-head" d="M0 0L8 4L0 8z"/></marker></defs>'
        )
        body = "".join([head, *lanes, *self._back, *self._front])
        return (
            f'<div class="timeline" tabindex="0"><svg role="img" aria-label="{escape(title)}" width="{width:g}" '
            f'height="{height:g}" viewBox="0 0 {width:g} {height:g}" xmlns="http://www.w3.org/2000/svg">{body}</svg></div>'
        )


class Timeline(SphinxDirective):
    """The argument is what is said of it, below it and to those who cannot see it."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"name": directives.unchanged}  # noqa: RUF012 - docutils asks for a dict

    def run(self) -> list[nodes.Node]:
        """Called by docutils."""
        try:
            drawing = Drawing("\n".join(self.content)).svg(self.arguments[0])
        except ValueError as error:
            raise self.error(str(error)) from None
        words: list[Any]
        words, messages = self.state.inline_text(self.arguments[0], self.lineno)
        figure = nodes.figure("", nodes.raw("", drawing, format="html"), nodes.caption(self.arguments[0], "", *words))
        figure["classes"].append("timeline-figure")
        return [figure, *messages]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("timeline", Timeline)
    return {"parallel_read_safe": True}
