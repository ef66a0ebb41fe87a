"""A chart as SVG, written by hand: no library, and the same bytes for the same chart."""

from html import escape

from scheduler.picture.chart import CAUSES, KINDS, SHADES, Chart, ticks, unit_of

WIDTH, ROW, MARGIN_LEFT, MARGIN_TOP = 1200, 34, 70, 40


def render(chart: Chart) -> str:
    """One row a rank, a time axis with its unit below, a legend under it."""
    scale = (WIDTH - MARGIN_LEFT - 20) / chart.makespan_s if chart.makespan_s else 0.0
    bottom = MARGIN_TOP + ROW * chart.ranks
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 80}" '
        f'viewBox="0 0 {WIDTH} {bottom + 80}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{bottom + 80}" fill="white"/>',
        f'<text x="{MARGIN_LEFT}" y="24" font-size="15" font-weight="bold">{escape(chart.title)}</text>',
    ]
    for rank in range(chart.ranks):
        y = MARGIN_TOP + ROW * rank
        parts.append(f'<text x="{MARGIN_LEFT - 8}" y="{y + ROW / 2 + 4}" text-anchor="end">rank {rank}</text>')
    for gap in chart.gaps:
        x, y = MARGIN_LEFT + gap.start_s * scale, MARGIN_TOP + ROW * gap.rank + 2
        parts.append(
            f'<rect x="{x:.2f}" y="{y}" width="{(gap.end_s - gap.start_s) * scale:.2f}" height="{ROW - 4}" '
            f'fill="{SHADES[gap.cause]}"/>'
        )
    for span in chart.spans:
        x, y = MARGIN_LEFT + span.start_s * scale, MARGIN_TOP + ROW * span.rank + 2
        width = (span.end_s - span.start_s) * scale
        dark = ' fill-opacity="0.72"' if chart.late(span) else ""
        label = str(span.action.microbatch) + (f".{span.action.chunk}" if span.action.chunk else "")
        parts.append(
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 4}" stroke="white" stroke-width="0.8" '
            f'fill="{KINDS[span.action.kind][1]}"{dark}><title>{span.action} on rank {span.rank}</title></rect>'
        )
        if width >= 7 * len(label) + 2:
            parts.append(
                f'<text x="{x + width / 2:.2f}" y="{y + ROW / 2 + 2}" text-anchor="middle" '
                f'fill="{chart.ink(span)}">{label}</text>'
            )
    parts += _axis(chart, scale, bottom) + _legend(chart, bottom + 62)
    return "\n".join([*parts, "</svg>", ""])


def _axis(chart: Chart, scale: float, y: float) -> list[str]:
    unit, seconds = unit_of(chart.makespan_s)
    parts = [f'<line x1="{MARGIN_LEFT}" y1="{y}" x2="{WIDTH - 20}" y2="{y}" stroke="black"/>']
    for tick in ticks(chart.makespan_s):
        x = MARGIN_LEFT + tick * scale
        parts.append(f'<line x1="{x:.2f}" y1="{y}" x2="{x:.2f}" y2="{y + 5}" stroke="black"/>')
        parts.append(f'<text x="{x:.2f}" y="{y + 18}" text-anchor="middle">{tick / seconds:g}</text>')
    parts.append(f'<text x="{WIDTH - 20}" y="{y + 34}" text-anchor="end">time in {unit}</text>')
    return parts


def _legend(chart: Chart, y: float) -> list[str]:
    entries = [(name, colour, 1.0) for name, colour in (KINDS[kind] for kind in chart.kinds)]
    if any(map(chart.late, chart.spans)):
        entries.append(("paler: the rank's later stages", KINDS[chart.kinds[0]][1], 0.72))
    entries += [(f"idle: {CAUSES[cause]}", SHADES[cause], 1.0) for cause in chart.causes]
    parts, x = [], float(MARGIN_LEFT)
    for name, colour, opacity in entries:
        parts.append(
            f'<rect x="{x}" y="{y - 11}" width="14" height="14" stroke="#999" '
            f'fill="{colour}" fill-opacity="{opacity}"/>'
        )
        parts.append(f'<text x="{x + 19}" y="{y}">{name}</text>')
        x += 36 + 6.6 * len(name)
    return parts
