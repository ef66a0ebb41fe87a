"""A chart as PNG by matplotlib. Imported only where a PNG is asked for."""

from pathlib import Path

from scheduler.picture.chart import CAUSES, KINDS, SHADES, Chart, unit_of


def write(chart: Chart, path: Path) -> None:
    """One row a rank, time axis with its unit, legend below. Raises OSError where the file cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    unit, seconds = unit_of(chart.makespan_s)
    figure = Figure(figsize=(14, 1.8 + 0.42 * chart.ranks), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for gap in chart.gaps:
        corner, width = (gap.start_s / seconds, gap.rank - 0.45), (gap.end_s - gap.start_s) / seconds
        axes.add_patch(Rectangle(corner, width, 0.9, facecolor=SHADES[gap.cause], linewidth=0))
    points = 14 * 72 * 0.92 / (chart.makespan_s or 1.0)
    for span in chart.spans:
        length = span.end_s - span.start_s
        axes.add_patch(
            Rectangle(
                (span.start_s / seconds, span.rank - 0.45), length / seconds, 0.9,
                facecolor=KINDS[span.action.kind][1], edgecolor="white", linewidth=0.6,
                alpha=0.72 if chart.late(span) else 1.0,
            )
        )  # fmt: skip
        label = str(span.action.microbatch) + (f".{span.action.chunk}" if span.action.chunk else "")
        if length * points >= 6 * len(label) + 2:
            middle = (span.start_s + length / 2) / seconds
            axes.text(middle, span.rank, label, ha="center", va="center", color=chart.ink(span), fontsize=8)
    axes.set_xlim(0, chart.makespan_s / seconds)
    axes.set_ylim(chart.ranks - 0.5, -0.5)
    axes.set_yticks(range(chart.ranks), [f"rank {rank}" for rank in range(chart.ranks)])
    axes.set_xlabel(f"time in {unit}")
    axes.set_title(chart.title)
    legend = [Patch(color=colour, label=name) for name, colour in (KINDS[kind] for kind in chart.kinds)]
    if any(map(chart.late, chart.spans)):
        legend.append(Patch(color=KINDS[chart.kinds[0]][1], alpha=0.72, label="paler: the rank's later stages"))
    legend += [Patch(color=SHADES[cause], label=f"idle: {CAUSES[cause]}") for cause in chart.causes]
    figure.legend(handles=legend, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})
