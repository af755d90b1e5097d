"""What was measured: every figure of every round, and the medians, spreads and ratios of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

from .request import Request
from .rows import AGAINST, Figure, Row


class Cell(NamedTuple):
    """What one figure was over the rounds."""

    median: float
    least: float
    most: float


class Line(NamedTuple):
    """One figure with one number of workers, of all that were measured."""

    figure: Figure
    workers: int
    cells: dict[str, Cell]

    def times_better(self, peer: str) -> float | None:
        """Return how many times better workpool's median is than a peer's."""
        if "workpool" not in self.cells or peer not in self.cells:
            return None
        return self.figure.times_better(self.cells["workpool"].median, self.cells[peer].median)


class Results:
    """The measurements as they come."""

    def __init__(self) -> None:
        self.measured: list[tuple[Request, dict[str, float]]] = []
        self.failures: list[tuple[Request, str]] = []

    def lines(self, row: Row) -> Iterator[Line]:
        """Yield the lines of a row."""
        found = [(r, figures) for r, figures in self.measured if r.measure == row.name]
        for figure in row.figures:
            for workers in dict.fromkeys(request.workers for request, _ in found):
                cells = {}
                for peer in row.peers:
                    values = [
                        figures[figure.name]
                        for request, figures in found
                        if (request.peer, request.workers) == (peer, workers)
                        and figure.name in figures
                    ]
                    if values:
                        cells[peer] = Cell(statistics.median(values), min(values), max(values))
                if cells:
                    yield Line(figure, workers, cells)

    def as_json(self, row: Row) -> list[dict[str, Any]]:
        """Return the lines of a row as JSON has them."""
        return [
            {
                "row": row.name,
                "figure": line.figure.name,
                "unit": line.figure.label,
                "more_is_better": line.figure.more_is_better,
                "workers": line.workers,
                "cells": {peer: cell._asdict() for peer, cell in line.cells.items()},
                "times_better": {peer: line.times_better(peer) for peer in AGAINST},
            }
            for line in self.lines(row)
        ]
