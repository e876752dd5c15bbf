"""Plots as plain SVG: bars, and lines on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

ROTA, LIMIT, PEER = "#2563eb", "#94a3b8", "#d97706"
COLOURS = {"rota": ROTA, "limit": LIMIT, "peer": PEER}
LINES = (
    "#2563eb", "#60a5fa", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d",
    "#64748b", "#cbd5e1",
)  # fmt: skip
WIDTH, LABEL, BAR, GAP, HEAD = 760, 190, 18, 6, 34
INK = "#334155"

Bar = tuple[str, float, str]  # name, value, kind
Points = Sequence[tuple[float, float]]


def bars(groups: Mapping[str, Sequence[Bar]], unit: str) -> str:
    """Horizontal bars, the largest of each group at full width."""
    body, top = [], 10
    for title, group in groups.items():
        body.append(_text(0, top + 16, title, weight="bold"))
        top += HEAD - 8
        most = max(value for _, value, _ in group)
        for name, value, kind in group:
            length = max(1.0, (WIDTH - LABEL - 110) * value / most)
            body.append(_text(LABEL - 8, top + 13, name, anchor="end"))
            body.append(
                f'<rect x="{LABEL}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2" '
                f'fill="{COLOURS[kind]}"/>'
            )
            body.append(_text(LABEL + length + 6, top + 13, f"{_short(value)} {unit}"))
            top += BAR + GAP
        top += 12
    return _svg(top, body)


def lines(series: Mapping[str, Points], x_title: str, y_title: str) -> str:
    """One line for each name: values on a logarithmic scale, at steps of equal width."""
    height, left, bottom, top = 400, 64, 350, 30
    right = WIDTH - 190
    steps = sorted({x for points in series.values() for x, _ in points})
    ys = [max(y, 1e-6) for points in series.values() for _, y in points]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    high = max(high, low + 1)

    def place_x(x: float) -> float:
        return left + (right - left) * steps.index(x) / max(1, len(steps) - 1)

    def place_y(y: float) -> float:
        return bottom - (bottom - top) * (math.log10(max(y, 1e-6)) - low) / (high - low)

    body = [_text(left, 16, y_title), _text(right, bottom + 40, x_title, anchor="end")]
    for power in range(low, high + 1):
        y = place_y(10.0**power)
        body.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e2e8f0"/>')
        body.append(_text(left - 8, y + 4, f"{10.0**power:g}", anchor="end"))
    for x in steps:
        body.append(_text(place_x(x), bottom + 20, _short(x), anchor="middle"))
    for points, colour in zip(series.values(), _colours(), strict=False):
        path = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    body += _legend(series, right + 16, top)
    return _svg(height, body)


def _legend(names: Mapping[str, Points], x: float, top: float) -> Iterator[str]:
    for number, (name, colour) in enumerate(zip(names, _colours(), strict=False)):
        y = top + 20 * number
        yield f'<rect x="{x}" y="{y}" width="12" height="12" rx="2" fill="{colour}"/>'
        yield _text(x + 18, y + 11, name)


def _colours() -> Iterator[str]:
    while True:
        yield from LINES


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{INK}">{escape(text)}</text>'
    )


def _svg(height: float, body: Sequence[str]) -> str:
    inside = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 0 {WIDTH + 24} {height:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="13">\n'
        f'<rect x="-12" width="{WIDTH + 24}" height="{height:.0f}" fill="white"/>\n'
        f"{inside}\n</svg>\n"
    )
