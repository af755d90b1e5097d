"""The table as a chart: for each figure a panel, for each pool a bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .peers import PEERS
from .results import Line
from .rows import Row
from .table import short

_OURS, _THEIRS, _LIMIT = "#c1440e", "#8a94a0", "#d9dde1"
_ACROSS = 3

#: Values that differ by more than this are on a logarithmic scale.
_DECADE = 10


def draw(path: Path, blocks: Sequence[tuple[Row, Sequence[Line]]], title: str) -> None:
    """Write a picture of some rows, each figure with the number of workers nearest to two."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [(row, line) for row, lines in blocks for line in _compared(lines)]
    down = max(1, math.ceil(len(panels) / _ACROSS))
    figure, axes = pyplot.subplots(
        down, _ACROSS, figsize=(15, 2.3 * down + 0.8), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (row, line) in zip(axes.flat, panels, strict=False):
        _panel(axis, row, line)
    figure.suptitle(f"{title}\nmedian of all rounds, least and greatest")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _compared(lines: Sequence[Line]) -> list[Line]:
    """Return one line of each figure that more than one has."""
    figures = dict.fromkeys(line.figure for line in lines if len(line.cells) > 1)
    return [
        min((line for line in lines if line.figure == figure), key=lambda x: abs(x.workers - 2))
        for figure in figures
    ]


def _panel(axis: Any, row: Row, line: Line) -> None:
    peers = [PEERS[peer] for peer in line.cells]
    cells = list(line.cells.values())
    places = range(len(cells))
    axis.barh(
        places,
        [cell.median for cell in cells],
        color=[
            _OURS if peer.name == "workpool" else _THEIRS if peer.open else _LIMIT for peer in peers
        ],
        xerr=[[c.median - c.least for c in cells], [c.most - c.median for c in cells]],
        error_kw={"lw": 1, "capsize": 2},
    )
    axis.set_yticks(places, [peer.name for peer in peers])
    axis.set_ylim(len(PEERS) - 1.5, -0.5)  # bars of one height everywhere
    least, most = min(cell.least for cell in cells), max(cell.most for cell in cells)
    if 0 < least < most / _DECADE:
        axis.set_xscale("log")
        axis.set_xlim(least / 2, most * 6)
    else:
        axis.set_xlim(0, most * 1.2 or 1)
    for place, cell in zip(places, cells, strict=True):
        axis.annotate(
            short(cell.median), (cell.most, place), (4, 0), textcoords="offset points", va="center"
        )
    better = "more" if line.figure.more_is_better else "less"
    workers = f"{line.workers} worker{'s' if line.workers > 1 else ''}"
    axis.set_title(f"{row.name}, {workers}: {line.figure.label} ({better} is better)", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
