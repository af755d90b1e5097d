"""The control word of a row, and the beat of a member: non-negative 64-bit integers.

::

    bit 63 | 62 ... 36  | 35 ... 32 | 31       | 30     | 29 ... 23 | 22 ... 4 | 3 ... 0
    0      | generation | attempt   | recalled | stride | ended     | owner    | state

A row may stand for several tasks, a *batch*: the word says how many of them have *ended*, as far as
their outcomes are in the window, whether the next was started alone or a *stride* of them, and
whether those after these have been recalled.

The beat of a member says how often its heart has beaten (its lower half), and the longest rest
between two of the beats in milliseconds.

Prior art: the bounded queue with a sequence number in each cell (D. Vyukov, 2010), whose sequence
number is our generation.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable
from functools import cache

WORD_NBYTES = 8

_STATE_BITS, _OWNER_BITS, _ENDED_BITS, _ATTEMPT_BITS, _GENERATION_BITS = 4, 19, 7, 4, 27
_OWNER_SHIFT = _STATE_BITS
_ENDED_SHIFT = _OWNER_SHIFT + _OWNER_BITS
_IS_STRIDE = 1 << (_ENDED_SHIFT + _ENDED_BITS)
_IS_RECALLED = _IS_STRIDE << 1
_ATTEMPT_SHIFT = _ENDED_SHIFT + _ENDED_BITS + 2
_GENERATION_SHIFT = _ATTEMPT_SHIFT + _ATTEMPT_BITS
_STATE_MASK = (1 << _STATE_BITS) - 1
_OWNER_MASK = (1 << _OWNER_BITS) - 1
_ATTEMPT_MASK = (1 << _ATTEMPT_BITS) - 1
_ENDED_MASK = (1 << _ENDED_BITS) - 1
_KEPT_MASK = -1 << _ENDED_SHIFT  # all but state and owner
_BEATS_BITS = 32
_BEATS_MASK = (1 << _BEATS_BITS) - 1
_MAX_REST_MS = (1 << 31) - 1

MAX_MEMBERS = _OWNER_MASK
MAX_ATTEMPT = _ATTEMPT_MASK
MAX_TASKS = 1 << _ENDED_BITS
MAX_GENERATION = (1 << _GENERATION_BITS) - 1

#: Tasks of the first strides.
STRIDE = 8


def pack_word(state: int, owner: int, attempt: int, generation: int) -> int:
    """Return the control word with these fields, and no task started but the first."""
    return (
        state | owner << _OWNER_SHIFT | attempt << _ATTEMPT_SHIFT | generation << _GENERATION_SHIFT
    )


def rewrite_word(word: int, state: int, owner: int) -> int:
    """Return `word` with another state and owner, everything else kept."""
    return (word & _KEPT_MASK) | owner << _OWNER_SHIFT | state


def change_state(word: int, state: int) -> int:
    """Return `word` with another state, everything else kept."""
    return (word & ~_STATE_MASK) | state


def next_tasks(word: int, ended: int, stride: bool) -> int:
    """Return `word` with the next task started after `ended` more outcomes, or the next stride."""
    return ((word & ~_IS_STRIDE) + (ended << _ENDED_SHIFT)) | _IS_STRIDE * stride


def recall_tasks(word: int) -> int:
    """Return `word` with the tasks that were not started recalled."""
    return word | _IS_RECALLED


def is_recalled(word: int) -> bool:
    """Return whether the tasks that were not started have been recalled."""
    return bool(word & _IS_RECALLED)


def is_stride(word: int) -> bool:
    """Return whether a stride of tasks was started, and not one alone."""
    return bool(word & _IS_STRIDE)


def ended_of(word: int) -> int:
    """Return how many tasks have ended, their outcomes in the window: the next one runs."""
    return (word >> _ENDED_SHIFT) & _ENDED_MASK


def stride_after(ended: int) -> int:
    """Return how many tasks a stride starts: as many as have ended in its row, or a few more.

    So a row takes few steps, and no more tasks are lost with a worker than it has shown to be
    short.
    """
    return max(STRIDE, ended)


def started_of(word: int) -> int:
    """Return how many tasks have been started; a stride may reach beyond the last one."""
    ended = ended_of(word)
    return ended + (stride_after(ended) if word & _IS_STRIDE else 1)


def state_of(word: int) -> int:
    """Return the state field of a control word."""
    return word & _STATE_MASK


def owner_of(word: int) -> int:
    """Return the member that a control word names."""
    return (word >> _OWNER_SHIFT) & _OWNER_MASK


def attempt_of(word: int) -> int:
    """Return how many earlier attempts were taken back, at most ``MAX_ATTEMPT``."""
    return (word >> _ATTEMPT_SHIFT) & _ATTEMPT_MASK


def generation_of(word: int) -> int:
    """Return the generation of a control word: 0 in a row that was never used."""
    return word >> _GENERATION_SHIFT


def next_beat(beat: int, rest_s: float) -> int:
    """Return the beat after another one, with the longest rest between two so far."""
    return (beat + 1) & _BEATS_MASK | min(int(rest_s * 1e3), _MAX_REST_MS) << _BEATS_BITS


def rest_of(beat: int) -> float:
    """Return the longest rest between two beats of a member, in seconds."""
    return (beat >> _BEATS_BITS) * 1e-3


class States:
    """Finds the words that are in some states among many, without looking at each in Python.

    Parameters
    ----------
    states : iterable of int
    """

    _FOUND = re.compile(b"\1")

    def __init__(self, states: Iterable[int]) -> None:
        wanted = frozenset(states)
        self._found = bytes((byte & _STATE_MASK) in wanted for byte in range(256))

    def rows(self, words: array[int]) -> list[int]:
        """Return the rows whose words are in one of the states, in order."""
        return self._rows(self._in_states(words))

    def rows_behind(self, words: array[int], turn: int, generation: int) -> list[int]:
        """Return those of them that are not in their latest generation, in order.

        Only the last four bits of generations are compared: a row that is behind by a multiple of
        16 is found when the next generation has come.

        Parameters
        ----------
        words : array of int64
        turn, generation : int
            The latest generation from this row on; that of the rows before is one more.
        """
        generations = _plane(words, _GENERATION_SHIFT // 8)
        first, rest = generations[:turn], generations[turn:]
        behind = first.translate(_others((generation + 1) & 15))
        behind += rest.translate(_others(generation & 15))
        # Both by one operation on two long numbers: there may be thousands of rows.
        both = int.from_bytes(behind, "little") & int.from_bytes(self._in_states(words), "little")
        return self._rows(both.to_bytes(len(words), "little"))

    def _in_states(self, words: array[int]) -> bytes:
        """Return for each row 1 if its word is in one of the states, else 0."""
        return _plane(words, 0).translate(self._found)

    def _rows(self, found: bytes) -> list[int]:
        return [match.start() for match in self._FOUND.finditer(found)]


def _plane(words: array[int], byte: int) -> bytes:
    """Return one byte of each word; 0 is the lowest."""
    first = byte if sys.byteorder == "little" else WORD_NBYTES - 1 - byte
    return words.tobytes()[first::WORD_NBYTES]  # a tenth of what a memoryview's slice takes


@cache
def _others(low: int) -> bytes:
    """Return for each byte of a generation's lowest bits 0 if they are these, else 1."""
    return bytes(byte >> _GENERATION_SHIFT % 8 != low for byte in range(256))
