"""Functions whose code crosses once for each worker, not once for each task.

A `CodeCache` on the driver decides, at each submit, between three ways for a callable to travel::

    by name     importable functions, builtins and classes: a Code of about 40 bytes, at once
    by value    functions and classes of the script, lambdas, closures, callable objects: a Code
                once one is seen for the second time and has a `Snapshot`; used only while that
                snapshot holds
    in the      everything else (bound methods, what reads or holds something that may change
    payload     unseen): lookup answers None, and the call takes it along

The second time, because a lambda made anew for each task is never seen twice. A function whose
snapshot no longer holds goes in the payload until it is seen unchanged, so one that changes for
every task (it reads the script's loop variable) does not leave a Code behind each time.

A Code has the classes of the script that its function reads, and companions: classes and functions
of the script that were among the arguments, which then only refer to them, see `references`.  A
bound method, or a callable object without a Code, goes in the payload, or with the items of a map,
and refers to what the Code of its class has.

What a worker makes of them: see `callables`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from pickle import dumps
from types import MethodType
from typing import Any, Final

import cloudpickle

from ..caches import LruCache, WeakLruCache
from ..errors import SerializationError
from ..interrupts import interrupts
from .atoms import is_unchanging
from .byname import PROTOCOL, named
from .byvalue import dumps_by_value
from .calls import pack_call
from .drawing import is_own_generator
from .frames import Encoded
from .instances import is_its_attributes
from .reach import Reach
from .references import CAPACITY, MAX_NBYTES, Code, Refer, UnknownDefinition
from .script import SCRIPT_MODULES
from .snapshot import Looks, Snapshot, is_definition

registered_modules: Final[Callable[[], set[str]]] = cloudpickle.list_registry_pickle_by_value
"""That of `byname`, where nobody needs to ask whether cloudpickle is imported."""

MOST_COMPANIONS: Final = 16
"""Definitions among arguments that come with a function, at the most."""

MOST_REFUSED: Final = 256
"""Times that one more finds no room among them, until all make room."""

WORTH_USES: Final = 16
"""Calls with a code that make up for making it."""


class _Known:
    """A callable on the driver, and the companions that its code brings.

    `snapshot` is None as long as nothing of them goes by value, `code` until there is one.
    """

    __slots__ = ("code", "companions", "fn", "is_named", "nbytes", "refused", "snapshot", "uses")

    def __init__(
        self,
        fn: Callable[..., Any],
        is_named: bool,
        companions: tuple[Any, ...] = (),
        nbytes: int = 0,
    ) -> None:
        self.fn = fn  # held, so that no other callable gets its id
        self.is_named = is_named
        self.companions = companions
        self.nbytes = nbytes  # of its latest code: what the snapshot holds is about as large
        self.uses = 0
        self.refused = 0  # how often there was no room for another companion
        self.snapshot: Snapshot | None = None
        self.code: Code | None = None

    def look(self) -> bool:
        """Take a snapshot of what goes by value, if anything does; tell whether all is known."""
        roots = self.companions if self.is_named else (self.fn, *self.companions)
        self.snapshot = Snapshot.take(*roots) if roots else None
        return self.snapshot is not None or not roots


def _is_searched(known: _Known, snapshot: Snapshot) -> bool:
    """Tell whether arguments are searched for what a callable has.

    Not for a function that only bindings make up, as long as no function is passed to it: to find
    one of its lists within a long list takes longer than to pickle that.
    """
    alone = known.is_named or is_definition(known.fn)
    only_classes = all(isinstance(it, type) for it in known.companions)
    return snapshot.has_states or not (alone and only_classes)


class CodeCache:
    """The driver's memory of the callables whose code crosses once.

    Threads may share it.

    Parameters
    ----------
    capacity : int
        Callables remembered; the least recently looked up makes room.
    max_nbytes : int
        Bytes of code remembered; one larger than this always goes in the payload.
    """

    def __init__(self, capacity: int = CAPACITY, max_nbytes: int = MAX_NBYTES) -> None:
        self._max_nbytes = max_nbytes
        self._known: LruCache[_Known] = LruCache(capacity, max_nbytes)
        self._seen: WeakLruCache[Looks] = WeakLruCache(4 * capacity)
        self._registered = registered_modules()
        self._ids = itertools.count(1)
        self._lock = threading.RLock()  # reentrant: pickling may run code that submits

    def lookup(self, fn: Callable[..., Any]) -> Code | None:
        """Return the code of a callable, or None when the call's payload must contain it.

        It is the same as before while everything that `fn` reads is unchanged.

        Notes
        -----
        Cost: 0.2 us for a known callable that goes by name, 0.4 us for one by value, and 0.05 us
        for each global and closure variable that it reads. 1 us at the first sight, 30 us and
        more when a Code is made.
        """
        known = self._known.use(id(fn))
        if known is None or registered_modules() != self._registered:
            return self._admit(fn)
        if known.snapshot is not None and not known.snapshot.holds():
            self._renew(known)
            return None
        known.uses += 1
        return known.code or self._encode(known)

    def at_once(self, fn: Callable[..., Any]) -> Code | None:
        """Return what `lookup` does, for many calls: the code of a function at its first sight."""
        code = self._soon(fn)
        known = self._known.get(id(fn))
        if known is not None:
            known.uses += WORTH_USES
        return code

    def _soon(self, fn: Callable[..., Any]) -> Code | None:
        return self.lookup(fn) or self.lookup(fn)

    def of_class(self, fn: Callable[..., Any]) -> tuple[Any, Code | None]:
        """Return the class of the script that a method or an object has, and its code.

        What is in the payload, or goes with the items of a map, refers to it.  The callable itself
        and None if there is none.
        """
        owner: Any = type(fn.__self__ if isinstance(fn, MethodType) else fn)
        if not is_definition(fn) and owner.__module__ in SCRIPT_MODULES:
            code = self._soon(owner)
            if code is not None:
                return owner, code
        return fn, None

    def pack(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        code: Code | None,
    ) -> tuple[Encoded, Code | None]:
        """Encode a call by `pack_call`, and have its code bring the definitions in its arguments.

        The `code` is that of `lookup`; what is returned is the one with which the call is sent.
        """
        owner: Any = fn
        if code is None:
            owner, code = self.of_class(fn)
        refer: Refer | None = None if code is None else code.refer
        while True:
            try:
                return pack_call(fn, args, kwargs, code if owner is fn else None, refer), code
            except UnknownDefinition as unknown:
                assert code is not None
                code, refer = self.extended(owner, code, unknown.definition)

    def blame(
        self, fn: Callable[..., Any], items: Iterable[Any], error: SerializationError
    ) -> SerializationError:
        """Return the error of the first item of a chunk that has one, `error` if none has."""
        own = self.lookup(fn)
        for item in items:
            try:
                self.pack(fn, item, {}, own)
            except SerializationError as named:
                return named
        return error

    def refer(self, fn: Callable[..., Any], code: Code) -> Refer | None:
        """Return `refer` of `encode` with a code that was looked up some time ago.

        None, to encode by value, if what came along with it is not what it was.
        """
        known = self._known.use(id(fn))
        if known is None or known.code is not code:
            return None
        return None if known.snapshot is not None and not known.snapshot.holds() else code.refer

    def extended(
        self, fn: Callable[..., Any], code: Code, definition: Any
    ) -> tuple[Code, Refer | None]:
        """Return the code of a callable with one companion more, and `refer` of `encode` with it.

        The same code and None, to encode by value, if the companion is not to be one: it may
        change unseen, or may never be met again.
        """
        known = self._known.use(id(fn))
        if known is None or known.code is not code:
            return code, None
        seen = self._sight_of(definition)
        if not seen.due():
            return code, None
        companions = known.companions
        if len(companions) == MOST_COMPANIONS:
            known.refused += 1
            if known.refused < MOST_REFUSED:
                return code, None
            companions = ()
        more = _Known(fn, known.is_named, (*companions, definition), known.nbytes)
        found = self._first(more, seen)
        return (code, None) if found is None else (found, found.refer)

    def _admit(self, fn: Callable[..., Any]) -> Code | None:
        """Make the code of a callable that is not known, if it may have one."""
        with self._lock:
            registered = registered_modules()
            if registered != self._registered:
                self._registered = registered
                self._known.clear()
        if named(fn) or is_unchanging(fn):
            return self._encode(_Known(fn, True))
        if not is_definition(fn) and not is_its_attributes(type(fn)):
            return None
        seen = self._sight_of(fn)
        if not seen.due():
            return None
        return self._first(_Known(fn, False), seen)

    def _first(self, known: _Known, seen: Looks) -> Code | None:
        """Return the first code of a callable, or of one with a companion more, if there is one."""
        found = self._encode(known) if known.look() else None
        if found is None:
            seen.failed()
        return found

    def _sight_of(self, fn: Callable[..., Any]) -> Looks:
        """Return what is remembered of a definition that has no code."""
        with self._lock:
            seen = self._seen.get(fn)
            if seen is None:
                seen = Looks(int(not isinstance(fn, type)))  # a function not when it is first seen
                self._seen.keep(fn, seen)
        return seen

    def _encode(self, known: _Known) -> Code | None:
        """Give a callable its code; None if it cannot be pickled or changed in the meantime."""
        fn, snapshot = known.fn, known.snapshot
        reach = None if snapshot is None else Reach(snapshot.copied)
        sent = (fn, *known.companions) if known.companions else fn
        try:
            plain = reach is None and not is_own_generator(fn)
            data = dumps(sent, PROTOCOL) if plain else dumps_by_value(sent, reach=reach)
        except interrupts():
            raise
        except BaseException:  # pack_call meets it again and says whose fault it is
            return None
        if len(data) > self._max_nbytes or (snapshot is not None and not snapshot.holds()):
            return None
        with self._lock:
            if known.code is None:  # else another thread was here first
                classes = () if snapshot is None else snapshot.classes.values()
                searched = snapshot is not None and _is_searched(known, snapshot)
                came = data, reach, classes, known.companions, searched
                known.code = Code(next(self._ids), *came)
                known.nbytes = len(data)
                self._known.keep(id(fn), known, known.nbytes)
            return known.code

    def _renew(self, known: _Known) -> None:
        """Take a new snapshot of a function that changed; its next lookup may give a code.

        What changes for every task is looked at less and less often: functions that were passed to
        it, which come again when they are met, and whatever is known by its bytes.
        """
        assert known.snapshot is not None
        companions = known.companions
        hasty = known.uses < WORTH_USES
        costly = hasty and known.snapshot.has_states
        classes = tuple(it for it in companions if isinstance(it, type))
        if hasty:
            for it in companions:
                if costly or not isinstance(it, type):
                    self._sight_of(it).failed()
        renewed = _Known(known.fn, known.is_named, () if costly else classes, known.nbytes)
        if costly and not companions:
            self._sight_of(known.fn).failed()
            holds = False
        else:
            holds = renewed.look()
        with self._lock:
            self._known.drop(id(known.fn))
            if holds:
                self._known.keep(id(known.fn), renewed, known.nbytes)
