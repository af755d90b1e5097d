"""Which call is which, in this run of a script and in the next one.

The key of a call stands for its function, its arguments, and how many equal calls came before it in
the pool.  So equal calls are different tasks, and the order of different calls does not matter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..accumulator import Accumulator
from ..errors import SerializationError, WorkPoolError
from ..interrupts import failures
from ..lazy import np
from ..serializer import Code, said, task_name
from ..serializer.fingerprint import call_fingerprint, fingerprint, item_fingerprints
from .journal import Keys, read_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MASK = (1 << 64) - 1


class CallKeys:
    """The keys of the calls that a pool makes, for one journal.  Thread-safe.

    Parameters
    ----------
    setup : tuple
        The pool's initializer and its arguments: what tasks return may depend on them.
    """

    def __init__(self, setup: tuple[Any, ...]) -> None:
        self._setup = b"" if setup[0] is None else _told("the initializer", fingerprint, setup)
        self._lock = threading.RLock()  # reentrant: whoever is `planning` counts
        self._functions: WeakKeyDictionary[Code, bytes] = WeakKeyDictionary()
        self._before = Occurrences()

    def of_call(
        self,
        fn: Callable[..., Any],
        code: Code | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: int,
    ) -> bytes:
        """Return the key of a call that is made now.

        Raises
        ------
        UsageError
            If there is an accumulator in it.
        SerializationError
            If it cannot be pickled.
        """
        digest = _told(fn, call_fingerprint, self._function(fn, code), args, kwargs, kind)
        first = int.from_bytes(digest[:8], "little")
        with self._lock:
            before = self._before.count_one(first)
        return ((first + before) & _MASK).to_bytes(8, "little") + digest[8:]

    def of_items(
        self, fn: Callable[..., Any], code: Code | None, items: Sequence[Any], several: bool
    ) -> Keys:
        """Return the keys of some items that are mapped now.

        Raises
        ------
        UsageError, SerializationError
            As for `of_call`.
        """
        function = self._function(fn, code)
        keys = read_keys(_told(fn, item_fingerprints, function, items, several))
        with self._lock:
            keys[:, 0] += self._before.count(keys[:, 0])
        return keys

    @contextmanager
    def planning(self) -> Iterator[Callable[[], None]]:
        """Hold the counts; the function that is given undoes what was counted since.

        For items that turn out to be sent another way.  Nobody else counts meanwhile, lest two
        equal calls get one key.
        """
        with self._lock:
            mark = self._before.mark()
            yield lambda: self._before.rewind(mark)

    def _function(self, fn: Callable[..., Any], code: Code | None) -> bytes:
        found = self._functions.get(code) if code is not None else None
        if found is None:
            found = _told(fn, fingerprint, (self._setup, fn))
            if code is not None:
                self._functions[code] = found
        return found


class Occurrences:
    """How often each of many numbers was met.

    Those of maps lie in sorted arrays, each at least twice as long as the next: 8 bytes a number.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []
        self._single: dict[int, int] = {}

    def count(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return for each number how many equal ones were met before it."""
        order = np.argsort(numbers, kind="stable")
        ranked = numbers[order]
        before = np.empty(len(numbers), np.int64)
        before[order] = np.arange(len(numbers)) - np.searchsorted(ranked, ranked)
        for run in self._runs:
            before += np.searchsorted(run, numbers, "right") - np.searchsorted(run, numbers)
        if self._single:
            single = self._single
            counts = [single.get(number, 0) for number in numbers.tolist()]
            before += np.array(counts, np.int64)
        self._runs.append(ranked)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]), kind="stable")
        return before.astype(np.uint64)

    def count_one(self, number: int) -> int:
        """Return how many equal numbers were met before this one."""
        before = self._single.get(number, 0)
        self._single[number] = before + 1
        for run in self._runs:
            wanted = np.uint64(number)
            before += int(np.searchsorted(run, wanted, "right") - np.searchsorted(run, wanted))
        return before

    def mark(self) -> object:
        """Return the state of the arrays."""
        return list(self._runs)

    def rewind(self, mark: Any) -> None:
        """Go back to a state of the arrays."""
        self._runs = list(mark)


def _told(what: object, tell: Callable[..., bytes], *parts: object) -> bytes:
    """Return what a function of `fingerprint` tells of what is called, or say why it cannot."""
    try:
        return tell(*parts, Accumulator)
    except failures() as error:
        if isinstance(error, WorkPoolError):
            raise
        raise SerializationError(
            f"cannot tell whether task {task_name(what)} is in the journal: its call cannot be "
            f"pickled ({said(error)}); pass plain data, or use a pool without journal="
        ) from error
