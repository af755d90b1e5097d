"""What the repository could get wrong, as edits of its code; for who uses it see `user_bugs`.

A bug names the smallest case that shows it, what is found at once when every call is checked, and
what is found when only consequences count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from workpool.layout import Geometry
from workpool.repository import Claimant, PointerTaker, Publisher
from workpool.repository.awaiter import Awaiter
from workpool.repository.reserver import Reserver

from .cases import METHODS, SECOND


class Bug(NamedTuple):
    """A planted bug, and the smallest case that shows it."""

    owner: type
    method: str
    edits: list[tuple[str, str]]  # what stands in the source, once, and what shall
    options: dict[str, Any]
    rule: str  # what is found when every call is checked
    harm: str | None = None  # when only consequences count; "" for nothing, None for the same
    methods: tuple[str, ...] = METHODS


_EVICTED = {"tasks": 1, "suspicions": 1}
_PIECES = {"tasks": 1, "how": "pieces", "workers": 1}
_FLUSH = [("    self.window.flush()", "    pass")]
_HELD = [("if found == claim.word:", "if True:")]
_DONE = [("return found == row.word", "return True")]
_COMPLETE = (
    "found, *others = self.window.put_and_swap(geometry.outcome(claim.number), record, steps)"
)
_PUT = "self.window.put(geometry.outcome(claim.number), record)\n"
_PAYLOAD = "task 0 reads the payload b"
_ANY_PAYLOAD = "task . reads the payload b"
_OUTCOME = "the outcome of task 0, ticket 0, owner . reads"

BUGS = {
    # Nothing is published before the flush that completes it.
    "publish without a flush": Bug(
        Publisher, "publish", _FLUSH, {"tasks": 2}, "writes the descriptor .* READY", _ANY_PAYLOAD
    ),
    "publish one without a flush": Bug(
        Publisher,
        "publish_one",
        [
            (
                "word, tail = self.window.put_and_swap(\n        descriptor, record, [",
                "self.window.put(descriptor, record)\n"
                "    word, tail = self.window.compare_and_swap_all([",
            )
        ],
        {"tasks": 1},
        "writes the descriptor .* READY",
        _PAYLOAD,
    ),
    "complete without a flush": Bug(
        Claimant,
        "complete",
        [(_COMPLETE, f"{_PUT}    found, *others = self.window.compare_and_swap_all(steps)")],
        {"tasks": 1},
        "writes the outcome .* DONE",
        _OUTCOME,
    ),
    "commit without a flush": Bug(
        Claimant,
        "commit",
        _FLUSH,
        {"tasks": 1, "how": "commit", "rows": 3, "crashes": 1},
        "writes the outcome .* COMMITTED",
        _OUTCOME,
    ),
    "request without a flush": Bug(
        Claimant,
        "request",
        _FLUSH,
        _PIECES,
        "writes the outcome .* WANTED",
        "Piece.* is wanted",  # what the row's record said before
    ),
    "supply without a flush": Bug(
        Publisher, "supply", _FLUSH, _PIECES, "writes the outcome .* CLAIMED", "WindowError"
    ),
    "the outcome after the commit": Bug(
        Claimant,
        "complete",
        [
            (
                _COMPLETE,
                "found, *others = self.window.compare_and_swap_all(steps)\n"
                f"    {_PUT}    self.window.flush()",
            ),
        ],
        {"tasks": 1},
        "writes the outcome .* DONE",
        _OUTCOME,
    ),
    "descriptors read before READY is seen": Bug(
        Claimant,
        "take",
        [
            (
                "    for run in runs(numbers):\n",
                "    early = self._read(numbers, self.geometry.descriptor, DESCRIPTOR_NBYTES)\n"
                "    for run in runs(numbers):\n",
            ),
            (
                "return self._offers(rows)",
                "return [Offer(row, early[numbers.index(row.number)]) for row in rows]",
            ),
        ],
        SECOND,
        _PAYLOAD,
        methods=("pointer",),  # by the counter, batches begin with the third task
    ),
    "a descriptor read before its claim": Bug(
        Claimant,
        "claim",
        [
            (
                "mine = protocol.claim(word, self.member)\n    # The one",
                "mine = protocol.claim(word, self.member)\n"
                "    if record is None:\n"
                "        (record,) = self._read([number], self.geometry.descriptor, 256)\n"
                "    # The one",
            )
        ],
        SECOND | {"limit": 1},
        _PAYLOAD,
    ),
    "a descriptor read before READY is seen, with its claim": Bug(
        Awaiter,
        "seize",
        [("self._published and ", "self._awaited >= 0 and ")],
        SECOND | {"limit": 1, "remembers": True},
        _PAYLOAD,
    ),
    # Each compare-and-swap compares with the word that its caller holds, and its answer counts.
    "complete against a fresh load": Bug(
        Claimant,
        "complete",
        [
            (
                "steps = [(geometry.word(claim.number), claim.word, done)]",
                "fresh = self.load(claim.number)\n"
                "    steps = [(geometry.word(claim.number), fresh, done)]",
            ),
            ("if found == claim.word:", "if found == fresh:"),
        ],
        _EVICTED,
        "EVICTED .* becomes DONE .* no step leads there",
        "row 0 is left DONE",
    ),
    "commit against a fresh load": Bug(
        Claimant,
        "_change",
        [
            ("# Against the word that we hold, never", "fresh = self.load(claim.number) #"),
            ("(claim.number), claim.word, word", "(claim.number), fresh, word"),
            ("if found == claim.word:", "if found == fresh:"),
        ],
        _EVICTED | {"how": "commit"},
        "EVICTED .* becomes COMMITTED .* no step leads there",
        "contributed twice",
    ),
    "reclaim of a freshly loaded word": Bug(
        Publisher,
        "step",
        [("word = protocol", "row = Row(row.number, self.load(row.number))\n    word = protocol")],
        _EVICTED,
        "no step 'reclaim' from DONE",
    ),
    "reserve against a fresh load": Bug(
        Reserver,
        "_hold",
        [
            (
                "steps = [(row.place, row.free, row.word) for row in wanted]",
                "wanted = [row._replace(free=self.load(row.number)) for row in wanted]\n"
                "            steps = [(row.place, row.free, row.word) for row in wanted]",
            ),
        ],
        SECOND | {"rows": 1},
        "becomes RESERVED .* not its step",
        "an attempt ran twice",
    ),
    "a lost claim ignored": Bug(
        Claimant,
        "claim",
        [("if found != word:\n        return", "if found is None:\n        return")],
        {"tasks": 1},
        "an attempt ran twice",
    ),
    "a lost claim of the next row ignored": Bug(
        Claimant,
        "complete",
        [("if others == [word]:", "if True:")],
        {"tasks": 2},
        "an attempt ran twice",
        methods=("pointer",),  # by the counter, batches begin with the third task
    ),
    "a lost claim of the only row ignored": Bug(
        Awaiter,
        "seize",
        [("if found == word else CONTENDED", "")],
        {"tasks": 1, "remembers": True},
        "an attempt ran twice",
    ),
    "an eviction ignored": Bug(Claimant, "complete", _HELD, _EVICTED, "row 0 is left EVICTED"),
    "an eviction before a commit ignored": Bug(
        Claimant, "_change", _HELD, _EVICTED | {"how": "commit"}, "contributed twice"
    ),
    "an eviction taken for an answer": Bug(
        Claimant,
        "answered",
        [("if word != claim.word and not self._keeps(claim, word):", "if False:")],
        _PIECES | {"suspicions": 1},
        "WindowError",
    ),
    "a lost reclaim ignored": Bug(Publisher, "step", _DONE, _EVICTED, "row 0 is left DONE"),
    "a lost cancel ignored": Bug(
        Publisher, "step", _DONE, {"tasks": 1, "cancels": 1}, "a cancelled attempt ran"
    ),
    "a lost reservation ignored": Bug(
        Reserver,
        "_take_in",
        [("if word == row.free:", "if True:")],
        SECOND | {"rows": 1},
        "writes the descriptor .* FREE",
        "the outcome of task 64, ticket 0, owner 1 reads",
    ),
    "a lost publication ignored": Bug(
        Publisher,
        "publish_one",
        [("if word == reserved:", "if True:")],
        SECOND | {"tasks": 0, "rows": 3, "hasty": 1},
        "no way leads to an end",
    ),
    "a lost publication of several ignored": Bug(
        Publisher,
        "publish",
        [("if word == row.word:", "if True:")],
        SECOND | {"tasks": 0, "second": 2, "rows": 3, "hasty": 1},
        "no way leads to an end",
    ),
    # A row's records are written only by whom its word names.
    "the descriptor before the reservation": Bug(
        Publisher,
        "publish_one",
        [
            (
                "if not (self._held or self.reserve_ahead(1)):\n",
                "for row in self._free_rows(1):\n"
                "        self.window.put(row.descriptor, record)\n"
                "    self.window.flush()\n"
                "    if not (self._held or self.reserve_ahead(1)):\n",
            )
        ],
        SECOND | {"rows": 1},
        "writes the descriptor .* FREE",
        _PAYLOAD,
    ),
    "descriptors before the reservation": Bug(
        Publisher,
        "publish",
        [
            (
                "self.reserve_ahead(len(records))\n",
                "for row, record in zip(self._free_rows(len(records)), records):\n"
                "        self.window.put(row.descriptor, record)\n"
                "    self.window.flush()\n"
                "    self.reserve_ahead(len(records))\n",
            )
        ],
        {"tasks": 2, "second": 2, "workers": 1},
        "writes the descriptor .* FREE",
        _ANY_PAYLOAD,
    ),
    "generations not compared": Bug(
        Reserver,
        "_reservation",
        [(" or word >= first:", ":")],
        SECOND | {"rows": 1},
        "becomes RESERVED .* not its step",
        "an attempt ran twice",
    ),
    "an evicted row never let go": Bug(
        Claimant,
        "_keeps",
        [("self.step(Row(claim.number, found), Step.LET_GO)", "pass")],
        _EVICTED,
        "row 0 is left EVICTED",
    ),
    "an evicted row let go before the flush": Bug(
        Claimant,
        "complete",
        [
            (
                _COMPLETE,
                f"{_PUT}    if not self.holds(claim):\n"
                "        return self.advance(claim, _COMPLETE), EMPTY\n"
                "    self.window.flush()\n"
                "    found, *others = self.window.compare_and_swap_all(steps)",
            )
        ],
        _EVICTED | {"rows": 1},
        "writes the outcome of row 0, FREE",
        "the outcome of task 0, ticket 1, owner 1 reads",
    ),
    "an evicted row let go by the submitter": Bug(
        Publisher,
        "step",
        [
            (
                "return found == row.word",
                "evicted = Row(row.number, word)\n"
                "    again = step is Step.RECLAIM and found == row.word\n"
                "    return self.step(evicted, Step.LET_GO) if again else found == row.word",
            )
        ],
        _EVICTED | {"rows": 1},
        "EVICTED .* becomes FREE .* not its step",
        "the outcome of task 0, ticket 1, owner 1 reads",
    ),
    "regions that overlap": Bug(
        Geometry,
        "region",
        [("(member - 1) * share", "(member - 2) * share")],
        {"tasks": 1, "how": "extent", "workers": 1},
        "overlap",
    ),
    # What is lost with a dead worker is found again.
    "nobody sweeps": Bug(
        Claimant,
        "sweep",
        [("if rows and before", "return Miss.EMPTY\n    if rows and before")],
        {"tasks": 1, "rows": 3, "crashes": 1},
        "no way leads to an end",
    ),
    # Nobody drops the ticket of a row that is about to be READY, or passes over the row.
    "a ticket that came too early dropped": Bug(
        Claimant,
        "claim",
        [("elif protocol.is_like(found, word, State.RESERVED):", "elif False:")],
        {"tasks": 1, "sweeps": None},
        "no way leads to an end",
    ),
    "tickets that came too early dropped": Bug(
        Claimant,
        "take",
        [("self._keep(range(ticket, tickets.stop), word)", "pass")],
        {"tasks": 3, "batch": 3, "limit": 3, "rows": 3, "workers": 1, "sweeps": None},
        "no way leads to an end",
    ),
    "of tickets that came too early only the first kept": Bug(
        Claimant,
        "take",
        [("range(ticket, tickets.stop)", "range(ticket, ticket + 1)")],
        {"tasks": 3, "batch": 3, "limit": 3, "rows": 3, "workers": 1, "sweeps": None},
        "no way leads to an end",
    ),
    "tickets behind one that came too early used": Bug(
        Claimant,
        "take",
        [("  # no later ones before it\n            break", "")],
        {"tasks": 3, "batch": 3, "limit": 3, "rows": 3, "workers": 1},
        "ticket . is started after",
    ),
    "a sweep that passes over a row": Bug(
        Claimant,
        "sweep",
        [("self._in_turn(", "(")],
        {"tasks": 2, "workers": 1},
        "ticket 0 is started after",
    ),
    # The words that say where to look only grow; but they say no more than that.
    "the tail pushed back": Bug(
        Publisher,
        "_push_tail",
        [("while tail != seen and tail < end:", "while tail != seen:")],
        SECOND,
        "TAIL is pushed backwards",
        "",
    ),
    "two kinds of atomics on one word": Bug(
        PointerTaker,
        "take",
        [("compare_and_swap(layout.HEAD, head, end)", "fetch_add(layout.HEAD, end - head)")],
        {"tasks": 1},
        "only TICKET is a counter word",
        "",
        methods=("pointer",),
    ),
}
