"""Two charts of simulated runs as one SVG: how many jobs took at most so long, and GPUs in use over time."""

import math
from collections.abc import Iterable, Sequence
from html import escape

from scheduler.simulator.simulate import Run
from scheduler.simulator.workload import Workload

WIDTH, HEIGHT, LEFT, TOP = 900, 260, 70, 40
COLOURS = ("#1b6ca8", "#d1495b", "#3c896d", "#edae49", "#6b4e9b", "#5c677d")
Point = tuple[float, float]


def draw(workload: Workload, runs: dict[str, Run]) -> str:
    """An SVG document."""
    submitted = {job.name: job.submit_s for job in workload.jobs}
    jcts = {name: sorted(run.ends_s[job] - submitted[job] for job in submitted) for name, run in runs.items()}
    least = math.log10(max(1.0, min(times[0] for times in jcts.values())))
    most = math.log10(max(times[-1] for times in jcts.values()))
    most = max(most, least + 0.1)
    cdf = {
        name: [((math.log10(max(1, at)) - least) / (most - least), (i + 1) / len(times)) for i, at in enumerate(times)]
        for name, times in jcts.items()
    }
    use = {name: _in_use(run) for name, run in runs.items()}
    end = max(points[-1][0] for points in use.values()) or 1.0
    peak = max(count for points in use.values() for _, count in points) or 1.0
    over_time = {name: [(at / end, count / peak) for at, count in points] for name, points in use.items()}
    powers = [(k, f"{10**k:,}") for k in range(math.ceil(least), math.floor(most) + 1)]
    total = 2 * (HEIGHT + TOP) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{total}" viewBox="0 0 {WIDTH} {total}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{total}" fill="white"/>',
        *_panel(0, "share of jobs by completion time (s)", cdf, [((k - least) / (most - least), t) for k, t in powers],
                "100 %"),
        *_panel(HEIGHT + TOP, "GPUs held over time (h)", over_time,
                [(k / 6, f"{end / 3600 * k / 6:.1f}") for k in range(7)], f"{peak:.0f}"),
        *_legend(list(runs), total - 20),
        "</svg>",
        "",
    ]  # fmt: skip
    return "\n".join(parts)


def _in_use(run: Run) -> list[Point]:
    """(seconds, devices held) at every change, as steps."""
    events: list[Point] = []
    held: dict[str, int] = {}
    for change in run.changes:
        now = sum(change.placement.values())
        events.append((change.time_s, now - held.get(change.job, 0)))
        held[change.job] = now
    events += [(run.ends_s[job], -count) for job, count in held.items()]
    points: list[Point] = [(0.0, 0.0)]
    count = 0.0
    for at, difference in sorted(events):
        points.append((at, count))
        count += difference
        points.append((at, count))
    return points


def _panel(y: float, title: str, lines: dict[str, list[Point]], ticks: Iterable[Point | tuple[float, str]],
           peak: str) -> list[str]:  # fmt: skip
    wide, base = WIDTH - LEFT - 20, y + HEIGHT
    parts = [
        f'<text x="{LEFT}" y="{y + 24}" font-size="15" font-weight="bold">{escape(title)}</text>',
        f'<line x1="{LEFT}" y1="{base}" x2="{LEFT + wide}" y2="{base}" stroke="black"/>',
        f'<line x1="{LEFT}" y1="{y + TOP}" x2="{LEFT}" y2="{base}" stroke="black"/>',
        f'<text x="{LEFT - 6}" y="{y + TOP + 8}" text-anchor="end">{peak}</text>',
    ]
    parts += [
        f'<text x="{LEFT + share * wide:.1f}" y="{base + 16}" text-anchor="middle">{text}</text>'
        for share, text in ticks
    ]
    tall = HEIGHT - TOP
    for number, points in enumerate(lines.values()):
        path = " ".join(f"{LEFT + x * wide:.1f},{base - share * tall:.1f}" for x, share in points)
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.4"/>')
    return parts


def _legend(names: Sequence[str], y: float) -> list[str]:
    parts: list[str] = []
    for number, name in enumerate(names):
        x, colour = LEFT + 110 * number, COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="{y}">{escape(name)}</text>')
    return parts
