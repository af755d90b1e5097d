"""What goes by its name: a worker imports it."""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from pickle import PickleBuffer, PicklingError, UnpicklingError
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, TypeAlias, cast

from ..caches import LruCache
from .instances import attributes_of, is_its_members, is_pickled_whole
from .script import SCRIPT_MODULES

PROTOCOL: Final = 5
"""Of pickle."""

METHOD: Final = b"\x8c\x07getattr"
"""In every plain pickle that has a method: so it writes the name of what looks that up."""

Keep: TypeAlias = Callable[[PickleBuffer], object]
"""What pickle calls with each buffer: if it returns something true, the buffer is in the pickle."""

REFUSALS: Final = PicklingError, AttributeError, TypeError, NotImplementedError
"""What pickle says of a lambda or a module, and what wrapt has decorated of itself."""

_NONE: Final[Set[str]] = frozenset()

_settled: Final[LruCache[tuple[object, str, str]]] = LruCache(256)
"""By its id, what cannot be copied, and its module and name there; "" and "" where none has it."""

_SCRIPT: Final = b"_main__"  # in every pickle that names something in __main__ or __mp_main__
_AS_MODULE: Final = (
    # So pickle writes these names, where they are the whole text,
    *(b"\x8c%c%b" % (len(name), name.encode()) for name in sorted(SCRIPT_MODULES)),
    b"_main__:",  # and so a curried function of toolz has the module before its own name.
)


def registered_modules() -> Set[str]:
    """Return the modules given to `cloudpickle.register_pickle_by_value`: none without that."""
    found = sys.modules.get("cloudpickle")
    return found.list_registry_pickle_by_value() if found else _NONE


def _is_by_value(module: str) -> bool:
    """Tell whether `module` is the script, or registered, or inside a registered package."""
    if module in SCRIPT_MODULES:
        return True
    return any(f"{module}.".startswith(f"{name}.") for name in registered_modules())


def names_by_value(pickled: bytes) -> bool:
    """Tell whether a pickle may name something that no worker can import."""
    if has(pickled, _SCRIPT) and any(has(pickled, name) for name in _AS_MODULE):
        return True
    registered = registered_modules()
    return bool(registered) and any(has(pickled, name.encode()) for name in registered)


def has(pickled: bytes, text: bytes) -> bool:
    """Tell whether a text is in a pickle.

    Notes
    -----
    Cost: 60 us for a megabyte; from its beginning CPython takes 350.
    """
    return pickled.rfind(text) >= 0


def is_imported(obj: Any) -> bool:
    """Tell whether a worker gets a module, or what is in its place, by importing its name."""
    try:
        name = obj.__name__
        return type(name) is str and sys.modules.get(name) is obj and not _is_by_value(name)
    except Exception:  # the object's own code; what fails here has no name
        return False


def named(obj: object) -> bool:
    """Tell whether `obj` is sent as a module and a name, and a worker can import that.

    Notes
    -----
    Cost: 2 us; the lookup of one qualified name.
    """
    if not is_importable(obj):
        is_class = issubclass(type(obj), type)
        return (place_of(cast("type", obj)) if is_class else settled_at(obj)) is not None
    if isinstance(obj, (FunctionType, BuiltinFunctionType, type)):
        return True
    reduce = copyreg.dispatch_table.get(type(obj))
    try:
        return isinstance(reduce(obj) if reduce else obj.__reduce_ex__(PROTOCOL), str)
    except Exception:  # the object's own code; what fails here is not a name
        return False


def place_of(cls: type) -> tuple[str, str] | None:
    """Return the module and the name there of a class that its module has under another name.

    None of others.  ``Point = namedtuple("Pt", "x y")`` makes such a class, and so does a factory.
    A copy would not be the one of which its module's functions take objects to be instances.

    Notes
    -----
    Cost: 20 us, for a class that pickle finds 2.
    """
    try:
        module = cls.__module__
        if _is_by_value(module) or is_importable(cls):
            return None
        found = vars(sys.modules[module]).copy().items()
        return next(((module, name) for name, it in found if it is cls), None)
    except Exception:  # the code of its metaclass, or of what is in the module's place
        return None


def settle(obj: Any) -> bool:
    """Have what cannot be copied go by the name that a module has for it; tell whether one has.

    After ``from m import session``, a worker's own is the `session` of its `m`.

    Notes
    -----
    Cost: 0.3 us, the first time 40 ns for each name of each module, 3 ms for a thousand modules.
    """
    known = _settled.use(id(obj))
    is_settled = settled_at(obj) is not None
    if is_settled or (known is not None and not known[1]):
        return is_settled
    module, name = held_at(obj) or ("", "")
    _settled.keep(id(obj), (obj, module, name))
    return bool(module)


def held_at(obj: Any) -> tuple[str, str] | None:
    """Return a module that has an object, and its name there: best its class's, or its package."""
    kind: Any = type(obj)
    own = kind.__module__
    package = own.partition(".")[0]
    found = [(it != own, it.partition(".")[0] != package, it, name) for it, name in _names_for(obj)]
    return min(found)[2:] if found else None


def _names_for(obj: object) -> Iterator[tuple[str, str]]:
    """Yield the modules that have an object, and its names there."""
    for module, it in sys.modules.copy().items():
        if module != "builtins" and not _is_by_value(module):  # where Python's prompt puts results
            with suppress(AttributeError):  # something else is in the module's place
                names: dict[str, Any] = object.__getattribute__(it, "__dict__")  # not a lazy one's
                yield from ((module, name) for name, has in names.copy().items() if has is obj)


def settled_at(obj: object) -> tuple[str, str] | None:
    """Return the module and the name by which something goes after `settle`; None of all else."""
    known = _settled.get(id(obj))
    if known is None or not known[1]:
        return None
    _, module, name = known
    try:
        return (module, name) if vars(sys.modules[module]).get(name) is obj else None
    except Exception:  # the code of what is in the module's place
        return None


def find_at(module: str, name: str, qualname: str) -> Any:
    """Return what is at a place, of `place_of` or `settled_at` in another process.

    `qualname` is that of a class, or of the class of anything else.
    """
    found = getattr(import_module(module), name, None)
    kind = found if isinstance(found, type) else type(found)
    if kind.__qualname__ != qualname:
        raise UnpicklingError(f"module {module} has no {qualname} under the name {name} here")
    if kind is not found:
        _settled.keep(id(found), (found, module, name))
    return found


def name_of_refusing(obj: Any) -> str | None:
    """Return the name of what refuses to be pickled, but can be imported; None of all else.

    What wrapt has decorated is such; so are functions of pybind11 2, which pickle takes for methods
    of an object that cannot be pickled, and those of Boost.Python, which have no qualified name.

    Notes
    -----
    Cost: 0.3 us for what has no name.
    """
    is_builtin = type(obj) is BuiltinFunctionType
    attributes = ("__name__",) if is_builtin else ("__qualname__", "__name__")
    attribute = next((it for it in attributes if is_importable(obj, it)), None)
    if attribute is None:
        return None
    try:
        (obj.__self__ if is_builtin else obj).__reduce_ex__(PROTOCOL)
    except Exception:  # whatever its own code says
        name: str = getattr(obj, attribute)
        return name
    return None


def is_found(method: MethodType) -> bool:
    """Tell whether pickle, which looks for a method by the name of its function, finds it.

    It does not where a decorator has left its own name, or for a method of a base.
    """
    name = getattr(method.__func__, "__name__", "")
    found = getattr(method.__self__, name, None)
    return type(found) is MethodType and found.__func__ is method.__func__


def reduce_method(method: MethodType) -> tuple[Any, ...]:
    """Return how pickle writes a method.

    Raises
    ------
    PicklingError
        Its object has another one under that name, or none.
    """
    if not is_found(method):
        raise PicklingError("a method that its object does not have under that name")
    return method.__reduce__()  # type: ignore[return-value]


def names_of_instances(kind: Any) -> Sequence[str]:
    """Return the names that the module of a class has of what is of just that class."""
    alone = is_its_members(kind) and is_pickled_whole(kind) and named(kind)
    return _instances(kind) if alone else ()


@lru_cache(maxsize=64)
def _instances(kind: Any) -> Sequence[str]:
    module = vars(sys.modules[kind.__module__])
    return tuple(name for name, it in module.copy().items() if type(it) is kind)


def name_of_mark(obj: Any, names: Sequence[str]) -> str | None:
    """Return the one of the `names` under which its module has an object that says no more.

    It has no attributes, or they are that name.  There is nothing to it but which object it is: a
    copy would be another one.
    """
    module = vars(sys.modules[type(obj).__module__])
    found = [name for name in names if module.get(name) is obj]
    said = attributes_of(obj).values() if found else ()
    if not all(type(it) is str for it in said):
        return None
    return next((name for name in found if {name}.issuperset(said)), None)


def is_importable(obj: object, attribute: str = "__qualname__") -> bool:
    """Tell whether `obj` is what a worker gets by importing its module and its name there.

    `attribute` is ``__qualname__`` or ``__name__``: what has that name.
    """
    try:
        module, name = getattr(obj, "__module__", None), getattr(obj, attribute, None)
        if type(module) is not str or type(name) is not str or _is_by_value(module):
            return False
        found: object = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part)
        return found is obj
    except Exception:  # the module's or the object's own code
        return False
