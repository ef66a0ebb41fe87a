"""Text in columns that never wraps. Widths are those of the display: 漢 is two columns wide.

It is written by hand rather than by rich's Table, which takes half a millisecond a row: a queue has thousands.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from scheduler.cli.output import folded, visible

if TYPE_CHECKING:
    from rich.console import Group

Cell = tuple[str, str]
"""A text of one line, and a style's name, empty for none."""


def width_of(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def fit_cell(text: str, width: int, right: bool) -> str:
    """Exactly `width` columns: padded, or cut with an ellipsis."""
    free = width - width_of(text)
    if free < 0:
        return set_cell_size(text, width - 1) + "…"
    return " " * free + text if right else text + " " * free


@dataclass(frozen=True)
class Grid:
    """titles and rows, all of the same length as widths; a column of width 0 is left out."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    widths: Sequence[int]
    right: Sequence[bool]

    def lines(self) -> Iterator[list[Cell]]:
        """Each line as styled pieces; joined by a space they are the line."""
        for row in ([(title, "bold") for title in self.titles], *self.rows):
            yield [
                (fit_cell(text, width, right), style)
                for (text, style), width, right in zip(row, self.widths, self.right, strict=True)
                if width
            ]

    def print(self) -> None:
        """To stdout; in colour only on a terminal, and not where NO_COLOR is set."""
        paint = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        out = "".join(_joined(line, paint) + "\n" for line in self.lines())
        sys.stdout.write(out)

    def __rich__(self) -> "Group":
        """For live views."""
        from rich.console import Group
        from rich.text import Text

        def drawn(line: list[Cell]) -> Text:
            return Text(" ", no_wrap=True, overflow="crop").join(Text(text, style) for text, style in line)

        return Group(*map(drawn, self.lines()))


def _joined(line: list[Cell], paint: bool) -> str:
    if not paint:
        return " ".join(text for text, _ in line).rstrip()
    from rich.style import Style

    return " ".join(Style.parse(style).render(text) if style else text for text, style in line)


def continued(rows: Sequence[Sequence[Cell]], width: int) -> list[Sequence[Cell]]:
    """Rows whose last cell is prose: what its `width` has no place for goes on in the same column below."""
    lines: list[Sequence[Cell]] = []
    for *others, (prose, style) in rows:
        first, *more = folded(prose, width)
        lines.append([*others, (first, style)])
        lines += [[*[("", "")] * len(others), (text, style)] for text in more]
    return lines


def grid(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> Grid:
    """A plain list, as wide as its content; where that is more than `width` columns, the last column gives way, and
    then the widest of the others."""
    cells = [[(visible(text), "") for text in row] for row in rows]
    columns = zip(titles, *([text for text, _ in row] for row in cells), strict=True)
    widths = [max(map(width_of, column)) for column in columns]
    least = [width_of(title) for title in titles]

    def excess() -> int:
        return sum(widths) + len(widths) - 1 - width if width is not None else 0

    widths[-1] = max(least[-1], widths[-1] - max(0, excess()))
    while excess() > 0 and (able := [i for i in range(len(widths)) if widths[i] > least[i]]):
        widths[max(able, key=lambda i: widths[i])] -= 1
    return Grid(titles, cells, widths, [False] * len(titles))
