"""What a member may do to which word and which bytes, checked at every call."""

from __future__ import annotations

from workpool import layout
from workpool.layout import DESCRIPTOR_NBYTES, OUTCOME_NBYTES, Geometry
from workpool.protocol import TRANSITIONS, State, Step, describe
from workpool.testing import Memory
from workpool.testing.memory import Op
from workpool.verbs import NEVER

from .labels import WORDS
from .places import OVER, cell, death_word, submitter_of
from .submitter import Submitter
from .worker import Worker


class Rules:
    """Checks every call, and remembers which steps rows have taken.

    Parameters
    ----------
    blind : bool
        Only remember: what a broken rule leads to has to be found by its consequences.
    """

    def __init__(self, blind: bool) -> None:
        self.blind = blind
        self.steps: set[Step] = set()

    def __call__(self, process: Submitter | Worker, memory: Memory, op: Op) -> None:
        try:
            self._check(process, memory, op)
        except AssertionError:
            if not self.blind:
                raise

    def _check(self, process: Submitter | Worker, memory: Memory, op: Op) -> None:
        verb, disp, *arguments = op
        if verb == "compare_and_swap":
            expected, desired = arguments
            assert disp != layout.TICKET, "TICKET is a counter word"
            assert (expected == NEVER) == (desired == NEVER), f"{op}: a negative word"
            if memory.word(disp) == expected != desired:
                step = _check_swap(process, memory, disp, expected, desired)
                if step is not None:
                    self.steps.add(step)
        elif verb == "fetch_add":
            assert disp == layout.TICKET, f"{op}: only TICKET is a counter word"
            assert arguments[0] >= 0, f"{op}: a ticket would be handed out again"
        elif verb == "put":
            _check_put(process, memory, disp, len(arguments[0]))
        elif verb == "accumulate":
            assert disp >= cell(process.shape, 0), f"{op}: there are no numbers"


def _check_swap(
    process: Submitter | Worker, memory: Memory, disp: int, before: int, after: int
) -> Step | None:
    """Check a change of a word; return the step if the word is a row's."""
    shape = process.shape
    rows = {shape.word(number): number for number in range(shape.rows)}
    if disp in rows:
        return _check_step(process, memory, rows[disp], before, after)
    if disp in (layout.HEAD, layout.TAIL):
        assert after > before, f"{WORDS[disp]} is pushed backwards"
    else:
        assert disp in (OVER, death_word(shape, process.member)), f"no word is at {disp}"
        assert (before, after) == (0, 1)
    return None


WORKER_STEPS = {Step.WANT, Step.OFFER, Step.COMMIT, Step.COMPLETE, Step.LET_GO}
SUBMITTER_STEPS = {Step.CANCEL, Step.SUPPLY, Step.TAKE, Step.SETTLE, Step.RECLAIM, Step.RETIRE}


def _check_step(
    process: Submitter | Worker, memory: Memory, number: int, before: int, after: int
) -> Step:
    """The word of a row changes only by a step of TRANSITIONS, taken by whom it belongs to."""
    shape, me = process.shape, process.member
    change = f"row {number}: {describe(before)} becomes {describe(after)} by member {me}"
    states = layout.state_of(before), layout.state_of(after)
    steps = {step for (state, step), then in TRANSITIONS.items() if (state, then) == states}
    assert steps, f"{change}: no step leads there"
    owner = layout.owner_of(after)
    submitter = submitter_of(task_in(shape, memory, number))
    for step in steps:
        if step is Step.RESERVE:
            mine = owner == me and layout.generation_of(after) > layout.generation_of(before)
        else:
            assert layout.generation_of(after) == layout.generation_of(before), change
            same = layout.attempt_of(after) == layout.attempt_of(before)
            assert same or step is Step.PUBLISH, change  # which says what attempt it is
            assert step is Step.CLAIM or owner == layout.owner_of(before), change
            if step in WORKER_STEPS | {Step.CLAIM, Step.PUBLISH}:
                mine = owner == me
            elif step in SUBMITTER_STEPS:
                mine = submitter == me
            else:
                mine = step is Step.ABANDON and owner != me
        if mine:
            return step
    raise AssertionError(f"{change}: not its step")


def task_in(shape: Geometry, memory: Memory, number: int) -> int:
    record = memory.read(shape.descriptor(number), DESCRIPTOR_NBYTES)
    return layout.read_descriptor(memoryview(record))[0].task_id


def _check_put(process: Submitter | Worker, memory: Memory, disp: int, nbytes: int) -> None:
    """Who may write a row's records follows from its word, who may write elsewhere from where."""
    shape, me = process.shape, process.member
    if disp >= shape.table_nbytes:
        start, length = shape.region(me)
        assert start <= disp <= start + length - nbytes, "a put outside its own region"
        return
    assert disp >= shape.descriptor(0), "a put over control words"
    for number in range(shape.rows):
        word = memory.word(shape.word(number))
        state, owner = layout.state_of(word), layout.owner_of(word)
        start = shape.descriptor(number)
        if max(disp, start) < min(disp + nbytes, start + DESCRIPTOR_NBYTES):
            mine = state in (State.RESERVED, State.EVICTED) and owner == me
            assert mine, f"member {me} writes the descriptor of row {number}, {describe(word)}"
        start = shape.outcome(number)
        if max(disp, start) < min(disp + nbytes, start + OUTCOME_NBYTES):
            if isinstance(process, Worker):
                mine = state in (State.CLAIMED, State.EVICTED) and owner == me
            else:
                mine = state == State.WANTED and submitter_of(task_in(shape, memory, number)) == me
            assert mine, f"member {me} writes the outcome of row {number}, {describe(word)}"
