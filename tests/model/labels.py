"""Calls as a person reads them."""

from __future__ import annotations

from typing import Any

from workpool import layout
from workpool.layout import Geometry
from workpool.protocol import describe
from workpool.testing.memory import Op
from workpool.verbs import NEVER

from .places import OVER

WORDS = {layout.HEAD: "HEAD", layout.TAIL: "TAIL", layout.TICKET: "TICKET", OVER: "OVER"}


class Labels:
    """Shows calls with the names of the words and the states that they are about."""

    def __init__(self, shape: Geometry) -> None:
        self.shape = shape
        self.rows = {shape.word(number): f"row {number}" for number in range(shape.rows)}

    def __call__(self, op: Op, answer: Any = None) -> str:
        verb, *arguments = op
        if verb == "compare_and_swap":
            disp, expected, desired = arguments
            text = f"load {self.name(disp)}"
            if expected != NEVER:
                words = " -> ".join(self.word(disp, word) for word in (expected, desired))
                text = f"{self.name(disp)}: {words}"
            if answer is None:
                return text
            if answer == expected:
                return f"{text}: done"
            return f"{text}: found {self.word(disp, answer)}"
        if verb in ("put", "get", "accumulate", "fetch_add"):
            text = f"{verb} {self.name(arguments[0])} {arguments[1]!r:.60}"
        else:
            text = f"{verb} {arguments}"
        return text if answer is None else f"{text}: {answer!r:.60}"

    def word(self, disp: int, word: int) -> str:
        return describe(word) if disp in self.rows else str(word)

    def name(self, disp: int) -> str:
        shape = self.shape
        if disp in WORDS or disp in self.rows:
            return WORDS.get(disp) or self.rows[disp]
        if disp >= shape.nbytes:
            return f"number {(disp - shape.nbytes) // 8}"
        for number in range(shape.rows):
            if disp == shape.descriptor(number):
                return f"descriptor {number}"
            if disp == shape.outcome(number):
                return f"outcome {number}"
        for member in range(shape.members):
            start, nbytes = shape.region(member)
            if start <= disp < start + nbytes:
                return f"region {member} + {disp - start}"
        return str(disp)
