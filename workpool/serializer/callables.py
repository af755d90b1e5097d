"""What a worker restores from the codes of callables, each as it was: see `code_cache`.

A `CallableCache` hands a callable out only while it is still as it was restored: what one task
leaves in a global, a nonlocal or an attribute of the function is not there for the next, as if the
function had been sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..caches import LruCache
from .atoms import is_unchanging
from .byname import named
from .frames import unpack
from .references import CAPACITY, MAX_NBYTES, come_along
from .script import clear_script, show, shown
from .snapshot import Looks, Snapshot


class _Restored:
    """A callable on a worker, and the means to restore it again.

    It came with `companions`, to which arguments refer, and with what is `shown`, which tasks find
    by its name in the script.

    One that each call changes, or that cannot be known, is looked at less and less often: to take a
    snapshot takes longer than to restore it.
    """

    __slots__ = ("_by_value", "_looks", "_snapshot", "companions", "data", "fn", "shown")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._looks = Looks()
        self._snapshot: Snapshot | None = None
        self.restore()

    def restore(self) -> None:
        """Make the callable anew."""
        clear_script()  # what an earlier task has shown is not ours
        loaded: Any = unpack(self.data, "a function, or what it reads")
        fn, *companions = loaded if type(loaded) is tuple else (loaded,)
        self.fn: Callable[..., Any] = fn
        self.companions = companions
        self.shown = shown()
        self._by_value = companions if named(fn) or is_unchanging(fn) else [fn, *companions]
        if self._by_value and self._looks.due():
            self._snapshot = Snapshot.take(*self._by_value, own_globals=True)
            self._looks.failed()  # unless it is found to hold

    def is_clean(self) -> bool:
        """Tell whether the callable is as it was restored, whoever has called it since."""
        if not self._by_value:
            return True
        if self._snapshot is None or not self._snapshot.holds():
            self._snapshot = None  # it need not be asked again
            return False
        self._looks.served()
        return True


class CallableCache:
    """A worker's callables, each as it was when it was restored.

    Parameters
    ----------
    capacity : int
        Callables remembered; the least recently used makes room.

    Attributes
    ----------
    restores : int
        How often one was restored.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._restored: LruCache[_Restored] = LruCache(capacity, MAX_NBYTES)
        #: The code whose callable showed no trace, and that nobody has had since.
        self._checked: int | None = None
        self.restores = 0

    def __contains__(self, code_id: int) -> bool:
        return code_id in self._restored

    def get(self, code_id: int) -> Callable[..., Any] | None:
        """Return a callable that shows no trace of earlier tasks.

        None when it must be added, for the first time or because it was dropped.

        Notes
        -----
        Cost: 0.3 us, and 0.05 us for each variable that the function reads; 20 us when the last
        task altered one, because the function is then restored anew.  If each task does, that takes
        as long as to restore what goes whole with a task.
        """
        restored = self._restored.use(code_id)
        checked, self._checked = self._checked, None
        if restored is None:
            return None
        if checked != code_id and not restored.is_clean():
            self.restores += 1
            restored.restore()
        for name, value in restored.shown.items():
            show(name, value)
        come_along(restored.companions)
        return restored.fn

    def check(self, code_id: int) -> None:
        """Look for traces of a task now, when nobody waits for it, so that `get` need not."""
        restored = self._restored.get(code_id)
        if restored is not None and restored.is_clean():
            self._checked = code_id

    def uncheck(self) -> None:
        """Say that something else has run meanwhile."""
        self._checked = None

    def add(self, code_id: int, data: bytes | bytearray | memoryview) -> Callable[..., Any]:
        """Restore a callable from a copy of the data of its `Code`, keep it, and return it.

        Raises
        ------
        SerializationError
            It cannot be restored here; ``__cause__`` says why.

        Notes
        -----
        Cost: 20 us for a small function.
        """
        self.uncheck()
        self.restores += 1
        restored = _Restored(bytes(data))
        self._restored.keep(code_id, restored, len(restored.data))
        return restored.fn
