"""The functions of the script that a pool is given: each is looked at once."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType

from ..caches import LruCache
from ..serializer import SCRIPT_MODULES, innermost, reads

#: Functions that are not looked at again.
_MOST = 256


class Met:
    """Those that were met before."""

    def __init__(self) -> None:
        self._seen: LruCache[CodeType] = LruCache(_MOST)

    def new(self, fn: object) -> Iterator[FunctionType]:
        """Yield the function of what is called, and those of the script that it reads, if new."""
        inner = innermost(fn)
        yield from self._new(inner.__func__ if isinstance(inner, MethodType) else inner)

    def _new(self, function: object) -> Iterator[FunctionType]:
        if type(function) is not FunctionType or function.__module__ not in SCRIPT_MODULES:
            return
        code = function.__code__
        if self._seen.use(id(code)) is code:
            return
        self._seen.keep(id(code), code)
        yield function
        for _, value in reads(function):
            yield from self._new(value)
