"""The functions of the script that a pool is given: each is looked at once."""

from __future__ import annotations

from collections.abc import Iterator, Set
from types import CodeType, FunctionType, MethodType

from ...caches import LruCache
from ...serializer import SCRIPT_MODULES, innermost, reads
from ...serializer.instances import functions_in
from ...serializer.names import with_nested

#: Functions that are not looked at again.
_MOST = 256

#: Methods that are called without their names.
_CALLED = frozenset({"__init__", "__call__"})


class Met:
    """Those that were met before."""

    def __init__(self) -> None:
        self._seen: LruCache[CodeType] = LruCache(_MOST)

    def new(self, fn: object) -> Iterator[FunctionType]:
        """Yield the function of what is called, and those of the script that it uses, if new."""
        inner = innermost(fn)
        if isinstance(inner, MethodType):
            yield from self._new(inner.__func__, _kind(inner.__self__))
        elif isinstance(inner, FunctionType):
            yield from self._new(inner)
        else:
            yield from self._methods(_kind(inner), _CALLED)

    def _new(self, function: object, kind: type = object) -> Iterator[FunctionType]:
        """Yield a function of the script, and those that it names: those of its class as well."""
        if not isinstance(function, FunctionType) or function.__module__ not in SCRIPT_MODULES:
            return
        code = function.__code__
        if self._seen.use(id(code)) is code:
            return
        self._seen.keep(id(code), code)
        yield function
        named = _CALLED.union(*(each.co_names for each in with_nested(code)))
        yield from self._methods(kind, named)
        for _, value in reads(function):
            if isinstance(value, FunctionType):
                yield from self._new(value)
            else:
                yield from self._methods(_kind(value), named)

    def _methods(self, kind: type, named: Set[str]) -> Iterator[FunctionType]:
        for cls in kind.__mro__:
            members = vars(cls) if cls.__module__ in SCRIPT_MODULES else {}
            for name in named & members.keys():
                member = members[name]
                for part in functions_in(member) or (member,):
                    yield from self._new(part, kind)


def _kind(value: object) -> type:
    return value if isinstance(value, type) else type(value)
