"""The life of a work descriptor, as a pure state machine: words in, words out.

No MPI, no clock, no I/O: ``repository`` carries these steps out, each by one compare-and-swap of
the word that the caller holds against the word that a function here returns::

    FREE -> RESERVED -> READY -> CLAIMED -> DONE -> FREE    the way of most tasks
            RESERVED -> EVICTED -> FREE                     its publisher is gone
                        READY -> FREE                       cancelled
                                 CLAIMED -> COMMITTED -> DONE       it contributes to accumulators
                                 CLAIMED -> WANTED -> CLAIMED       the next piece of its payload
                                 CLAIMED -> OFFERED -> CLAIMED      the next piece of its outcome
                                 CLAIMED -> EVICTED -> FREE         its owner is gone; also from
                                                                    WANTED and OFFERED

The rules that hold in every reachable table:

* A word changes only by a step of ``TRANSITIONS``, and its generation only grows.
* Who may write a row's records follows from its word: the publisher while RESERVED or WANTED, the
  owner while CLAIMED; nobody in any other state.  An EVICTED row is left alone until its former
  owner, whose last Put may still be on its way, lets go of it.
* A generation of a row is one attempt, of one task or of those of a batch: a task that is taken
  back is published again under a new ticket, so an outcome is private to its attempt until
  ``next``, ``commit`` or ``complete`` shows it.
* Only the submitter changes a word that is DONE, and only the owner one that is CLAIMED, but for
  the steps RECLAIM and RECALL, which are the submitter's.
* A row may stand for several tasks, a batch.  Its owner starts them in order, the first by its
  claim; the step to the next, or to a stride of several at once, says that the outcomes of those
  before are in the window.  Its submitter may recall what is not started: after that there is no
  next.  An owner that cannot run all of the stride that it has started gives the rest back.

Prior art: states as data after h11; the descriptor table of the "pool of work descriptors" in
V. Eijkhout, Parallel Programming in MPI, OpenMP and PETSc, section 9.3.7.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from . import layout
from .errors import ProtocolError
from .layout import (
    MAX_ATTEMPT,
    MAX_GENERATION,
    attempt_of,
    change_state,
    ended_of,
    generation_of,
    is_recalled,
    is_stride,
    owner_of,
    pack_word,
    rewrite_word,
    started_of,
    state_of,
)


class State(IntEnum):
    """What a row is doing; the value is the state field of its control word."""

    FREE = 0  #: holds nothing; the generation is the last one that it served
    RESERVED = 1  #: a publisher (the owner) writes a descriptor into it
    READY = 2  #: published by its owner; the first worker to claim it runs it
    CLAIMED = 3  #: its owner runs it
    WANTED = 4  #: its owner waits for a piece of the payload
    OFFERED = 5  #: its owner offers a piece of the outcome
    COMMITTED = 6  #: the outcome is decided, numeric contributions are on their way
    DONE = 7  #: the outcome is complete; its submitter may collect it
    EVICTED = 8  #: taken back from its owner, who has not let go of it yet


class Step(Enum):
    """What a member may do to a row."""

    RESERVE = "reserve"  #: publisher: take a free row
    PUBLISH = "publish"  #: publisher: the descriptor is visible, let workers have it
    ABANDON = "abandon"  #: anyone: its publisher is gone, or has lost it; it is not published
    CANCEL = "cancel"  #: submitter: nobody shall run it
    CLAIM = "claim"  #: worker: I run it
    WANT = "want"  #: owner: the next piece of the payload, please
    SUPPLY = "supply"  #: submitter: here it is
    OFFER = "offer"  #: owner: here is a piece of the outcome
    TAKE = "take"  #: submitter: I have it
    NEXT = "next"  #: owner: I run the next tasks, the outcomes of those before them are there
    RECALL = "recall"  #: submitter: no more tasks, please
    GIVE_BACK = "give back"  #: owner: of the tasks that I said I start, one runs and no more will
    COMMIT = "commit"  #: owner: the outcome stands, contributions follow
    COMPLETE = "complete"  #: owner: all is in the window
    SETTLE = "settle"  #: submitter: the owner died after its commit; nobody knows what it added
    RECLAIM = "reclaim"  #: submitter: the owner is gone, the attempt is void
    LET_GO = "let go"  #: former owner: I write there no more; submitter: its process is gone
    RETIRE = "retire"  #: submitter: collected

    __hash__ = object.__hash__  # an enum's own costs more than a step


#: The whole protocol: which step leads from which state to which.
TRANSITIONS: dict[tuple[State, Step], State] = {
    (State.FREE, Step.RESERVE): State.RESERVED,
    (State.RESERVED, Step.PUBLISH): State.READY,
    (State.RESERVED, Step.ABANDON): State.EVICTED,
    (State.READY, Step.CANCEL): State.FREE,
    (State.READY, Step.CLAIM): State.CLAIMED,
    (State.CLAIMED, Step.WANT): State.WANTED,
    (State.WANTED, Step.SUPPLY): State.CLAIMED,
    (State.CLAIMED, Step.OFFER): State.OFFERED,
    (State.OFFERED, Step.TAKE): State.CLAIMED,
    (State.CLAIMED, Step.NEXT): State.CLAIMED,
    (State.CLAIMED, Step.RECALL): State.CLAIMED,
    (State.CLAIMED, Step.GIVE_BACK): State.CLAIMED,
    (State.CLAIMED, Step.COMMIT): State.COMMITTED,
    (State.CLAIMED, Step.COMPLETE): State.DONE,
    (State.COMMITTED, Step.COMPLETE): State.DONE,
    (State.COMMITTED, Step.SETTLE): State.DONE,
    (State.CLAIMED, Step.RECLAIM): State.EVICTED,
    (State.WANTED, Step.RECLAIM): State.EVICTED,
    (State.OFFERED, Step.RECLAIM): State.EVICTED,
    (State.EVICTED, Step.LET_GO): State.FREE,
    (State.DONE, Step.RETIRE): State.FREE,
}

# What every task needs, by its own name: an attribute of an enumeration costs as much as a call.
_FREE, _RESERVED = State.FREE, State.RESERVED
_READY, _CLAIMED = State.READY, State.CLAIMED

# The same table, for one step at a time.
_AFTER = {step: {int(a): int(b) for (a, s), b in TRANSITIONS.items() if s is step} for step in Step}


def advance(word: int, step: Step) -> int:
    """Return `word` after a step that changes nothing in it but the state.

    The other steps have functions of their own.

    Raises
    ------
    ProtocolError
        If the state machine has no such step from the word's state.
    """
    try:
        return change_state(word, _AFTER[step][state_of(word)])
    except KeyError:
        raise ProtocolError(f"no step {step.value!r} from {describe(word)}") from None


def next_tasks(word: int, ended: int, stride: bool) -> int:
    """Return a CLAIMED word with the next task started, or the next stride.

    Parameters
    ----------
    word : int
    ended : int
        How many outcomes there are more than before.
    stride : bool
        Whether several tasks are started, or one.
    """
    _check_tasks(word, Step.NEXT, not is_recalled(word))
    return layout.next_tasks(word, ended, stride)


def recall(word: int) -> int:
    """Return a CLAIMED word whose tasks are recalled that are not started."""
    _check_tasks(word, Step.RECALL, not is_recalled(word))
    return layout.recall_tasks(word)


def give_back(word: int, ended: int) -> int:
    """Return a CLAIMED word of which all tasks but one are given back.

    Parameters
    ----------
    word : int
        Of a stride; it may be recalled.
    ended : int
        How many outcomes there are more than before: the task after them is the one.
    """
    _check_tasks(word, Step.GIVE_BACK, is_stride(word))
    return layout.recall_tasks(layout.next_tasks(word, ended, stride=False))


def _check_tasks(word: int, step: Step, holds: bool) -> None:
    if state_of(word) not in _AFTER[step] or not holds:
        raise ProtocolError(f"no step {step.value!r} from {describe(word)}")


def claim(word: int, owner: int) -> int:
    """Return a READY word as claimed by `owner`."""
    if state_of(word) != _READY:
        raise ProtocolError(f"no step 'claim' from {describe(word)}")
    return rewrite_word(word, _CLAIMED, owner)


def reserve(word: int, owner: int, generation: int) -> int:
    """Return a FREE word as reserved by `owner` for a later generation."""
    if state_of(word) != _FREE or not generation_of(word) < generation <= MAX_GENERATION:
        raise ProtocolError(f"no step 'reserve' from {describe(word)} to generation {generation}")
    return pack_word(_RESERVED, owner, 0, generation)


def publish(word: int, attempt: int) -> int:
    """Return a RESERVED word as published, after `attempt` earlier attempts."""
    if state_of(word) != _RESERVED:
        raise ProtocolError(f"no step 'publish' from {describe(word)}")
    return pack_word(_READY, owner_of(word), min(attempt, MAX_ATTEMPT), generation_of(word))


def ready(generation: int) -> int:
    """Return the word of a first attempt as the driver publishes it."""
    return pack_word(_READY, 0, 0, generation)


def is_like(word: int, other: int, state: State) -> bool:
    """Return whether a word is in some state, for the same ticket as another one of its row."""
    return state_of(word) == state and generation_of(word) == generation_of(other)


def describe(word: int) -> str:
    """Return a control word as a person reads it."""
    try:
        name = State(state_of(word)).name
    except ValueError:
        name = f"state {state_of(word)}"
    tasks = f"task {ended_of(word)}"
    if is_stride(word):
        tasks = f"tasks {ended_of(word)} to {started_of(word) - 1}"
    last = ", the last" if is_recalled(word) else ""
    return (
        f"{name} (owner {owner_of(word)}, {tasks}{last}, attempt {attempt_of(word)}, "
        f"generation {generation_of(word)})"
    )
