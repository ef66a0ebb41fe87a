"""A chart as text: two lines a rank, micro-batch numbers over letters, so that it reads without colours too."""

from policies.ir.action import Kind
from scheduler.picture.chart import CAUSES, KINDS, Chart, ticks, unit_of

_IDLE = "·~-!"
_ANSI = {
    Kind.FORWARD: "44;97",
    Kind.BACKWARD: "42;97",
    Kind.BACKWARD_INPUT: "102;30",
    Kind.BACKWARD_WEIGHT: "43;30",
}


def render(chart: Chart, width: int = 100, colour: bool = False) -> str:
    """Text of at most `width` columns. A number stands where its box begins, as far as it fits."""
    margin = len(f"rank {chart.ranks - 1} ")
    columns = max(20, width - margin)
    scale = columns / chart.makespan_s if chart.makespan_s else 0.0
    lines = [chart.title] if chart.title else []
    for rank in range(chart.ranks):
        numbers, letters, styles = [" "] * columns, [" "] * columns, [""] * columns
        for gap in chart.gaps:
            if gap.rank == rank:
                for column in range(round(gap.start_s * scale), round(gap.end_s * scale)):
                    letters[column] = _IDLE[gap.cause]
        for span in chart.spans:
            if span.rank != rank:
                continue
            first, stop = round(span.start_s * scale), round(span.end_s * scale)
            letter = str(span.action.kind)
            for column in range(first, stop):
                letters[column] = letter.lower() if chart.late(span) else letter
                styles[column] = _ANSI[span.action.kind]
            label = str(span.action.microbatch) + (f".{span.action.chunk}" if span.action.chunk else "")
            if len(label) <= stop - first:
                numbers[first : first + len(label)] = label
        lines.append(f"{f'rank {rank}':<{margin}}" + _paint(numbers, styles, colour))
        lines.append(" " * margin + _paint(letters, styles, colour))
    return "\n".join([*lines, " " * margin + _axis(chart, scale, columns), _legend(chart)])


def _paint(cells: list[str], styles: list[str], colour: bool) -> str:
    if not colour:
        return "".join(cells).rstrip()
    text, current = "", ""
    for cell, style in zip(cells, styles, strict=True):
        if style != current:
            text += f"\x1b[0m\x1b[{style}m" if style else "\x1b[0m"
            current = style
        text += cell
    return text + ("\x1b[0m" if current else "")


def _axis(chart: Chart, scale: float, columns: int) -> str:
    unit, seconds = unit_of(chart.makespan_s)
    cells = [" "] * columns
    free = 0
    for tick in ticks(chart.makespan_s, 6):
        label = f"|{tick / seconds:g} {unit}"
        column = round(tick * scale)
        if column >= free and column + len(label) <= len(cells):
            cells[column : column + len(label)] = label
            free = column + len(label) + 1
    return "".join(cells).rstrip()


def _legend(chart: Chart) -> str:
    work = [f"{kind} {KINDS[kind][0]}" for kind in chart.kinds]
    second = ["small letters: the rank's later stages"] if any(map(chart.late, chart.spans)) else []
    return "  ".join([*work, *second, *(f"{_IDLE[cause]} {CAUSES[cause]}" for cause in chart.causes)])
