"""The table as text: a block for each row as soon as it is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .peers import PEERS
from .results import Cell, Line
from .rows import AGAINST, Row

_LABEL, _TIMES, _CELL = 14, 9, 11

#: From which value on, in which unit.
_UNITS = ((1e6, 1e6, "M"), (1e4, 1e3, "k"), (0, 1, ""))
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"

LEGEND = """\
Each figure is the median of all rounds; under it stand the least and the greatest. "times" is how
many times better workpool's median is. What would take more than a second is done with fewer tasks;
as many have run before those that are timed.
its control   mpi4py.futures with os.sched_yield() in place of every sleep while it waits
serial loop   pickle, restore and call each task, pickle and restore its result, in one process
claim loop    as many ranks as there are workers take numbers from a counter in an MPI window"""


class Table:
    """Renders rows in the columns of those peers that any of them has.

    Parameters
    ----------
    rows : iterable of Row
    styled : bool
        Whether it goes to a terminal.
    """

    def __init__(self, rows: Iterable[Row], styled: bool) -> None:
        present = {peer for row in rows for peer in row.peers}
        self._peers = [peer for peer in PEERS if peer in present]
        self._against = [peer for peer in AGAINST if peer in present]
        self._dim, self._plain = (_DIM, _PLAIN) if styled else ("", "")

    @property
    def width(self) -> int:
        """Return the characters of a line."""
        return _LABEL + 3 + _TIMES * len(self._against) + _CELL * len(self._peers)

    def head(self) -> str:
        """Return the lines that head the columns."""
        titles = [f"times|{PEERS[peer].title}" for peer in self._against]
        titles += [PEERS[peer].title for peer in self._peers]
        stacks = [[""] * 3 + title.split("|") for title in titles]
        lines = []
        for level in (-3, -2, -1):
            label = "workers".rjust(_LABEL + 3) if level == -1 else " " * (_LABEL + 3)
            lines.append(self._line(label, [stack[level] for stack in stacks]))
        return "\n".join([*lines, "=" * self.width])

    def block(self, row: Row, lines: Iterable[Line]) -> str:
        """Return the title of a row and its lines."""
        head, *more = row.title.split("\n")
        text = [f"{row.name}: {head}", *(" " * (len(row.name) + 2) + words for words in more)]
        label = ""
        for line in lines:
            begins = line.figure.label != label
            label = line.figure.label
            first = f"{label if begins else '':<{_LABEL}}{line.workers:>3}"
            text.append(self._line(first, [*self._ratios(line), *self._medians(line)]))
            spreads = ["" for _ in self._against] + self._spreads(line)
            if any(spreads):
                text.append(self._dim + self._line(" " * len(first), spreads) + self._plain)
        return "\n".join([*text, "-" * self.width])

    def _line(self, label: str, words: Sequence[str]) -> str:
        widths = [_TIMES] * len(self._against) + [_CELL] * len(self._peers)
        cells = (f"{word:>{width}}" for word, width in zip(words, widths, strict=True))
        return (label + "".join(cells)).rstrip()

    def _ratios(self, line: Line) -> list[str]:
        found = [line.times_better(peer) for peer in self._against]
        return ["" if times is None else short(times) for times in found]

    def _medians(self, line: Line) -> list[str]:
        found = [line.cells.get(peer) for peer in self._peers]
        return ["" if cell is None else short(cell.median) for cell in found]

    def _spreads(self, line: Line) -> list[str]:
        found = [line.cells.get(peer) for peer in self._peers]
        return ["" if cell is None else spread(cell) for cell in found]


def short(value: float) -> str:
    """Return a number in three digits.

    >>> short(104_321), short(38.06), short(3_912), short(0.0123)
    ('104k', '38.1', '3912', '0.01')
    """
    unit, sign = _unit(value)
    return _digits(value / unit) + sign


def spread(cell: Cell) -> str:
    """Return the least and the greatest in the unit of the median; nothing if they are the same.

    >>> spread(Cell(104_321, 98_765, 107_000))
    '98.8-107k'
    """
    if cell.least == cell.most:
        return ""
    unit, sign = _unit(cell.median)
    return f"{_digits(cell.least / unit)}-{_digits(cell.most / unit)}{sign}"


def _unit(value: float) -> tuple[float, str]:
    return next((unit, sign) for least, unit, sign in _UNITS if abs(value) >= least)


def _digits(value: float) -> str:
    decimals = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{decimals}f}"
