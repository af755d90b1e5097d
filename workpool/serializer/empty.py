"""Classes that are made empty, before they are filled with what they are in another process.

What the hooks of the script have made of a class, those of its metaclass and of its bases, is in
its attributes.  They are not called once more: a hook that counts classes, or registers them, would
count one twice.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from .byname import named

_HOOK: Final = "__init_subclass__"

_STORED: Final = frozenset(
    {"__module__", "__doc__", "__annotations__", "__annotate__"}
    | {"__type_params__", "__abstractmethods__"}
)
"""What `type` has a setter for that keeps it among the attributes of the class."""

_UNHOOKED: Final = threading.RLock()  # held by whoever changes the hooks of classes for a moment


def make_empty(
    metaclass: Any,
    name: str,
    bases: tuple[Any, ...],
    content: dict[str, Any],
    is_ours: Callable[[type], object],
) -> type:
    """Return a class that has nothing but `content`.

    Its `bases` are as they were written: there may be generic aliases among them.  `is_ours` tells
    whether a class goes by value, so that its hooks are those of the script.

    Raises
    ------
    Exception
        Of what makes classes of this kind.
    """
    resolved = types.resolve_bases(bases)
    above = {id(cls): cls for base in resolved for cls in base.__mro__}.values()
    # The first one that is none of the script's, which may do more when classes are made.
    maker = next(cls for cls in metaclass.__mro__ if not is_ours(cls))

    def make() -> type:
        if maker is metaclass:
            options = {"metaclass": metaclass}
            return types.new_class(name, bases, options, lambda ns: ns.update(content))
        namespace = maker.__prepare__(name, resolved)
        namespace.update(content)
        if resolved is not bases:
            namespace["__orig_bases__"] = bases
        made: type = maker.__new__(metaclass, name, resolved, namespace)
        maker.__init__(made, name, resolved, namespace)
        return made

    try:
        with _unhooked(cls for cls in above if is_ours(cls)):
            return make()
    except Exception:  # of the hook of some other base, which wants its arguments
        with _unhooked(above):
            return make()


def metaclass_of(cls: type) -> type:
    """Return what a class is to be made by: `type` finds a metaclass again that a base brings.

    Those of pybind11 and nanobind have a name by which nobody can import them.
    """
    meta = type(cls)
    if meta is type or named(meta):
        return meta
    brought = any(type(base) is meta and named(base) for base in cls.__mro__)
    return type if brought else meta


def hidden_in(cls: type, attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes that its metaclass, or `type`, would not let be set."""
    hidden = {
        name
        for base in type.mro(type(cls))
        for name, it in vars(base).copy().items()
        if hasattr(type(it), "__set__") and not (base is type and name in _STORED)
    }
    return {name: attributes[name] for name in hidden & attributes.keys()}


def parameters(cls: Any) -> tuple[Any, object] | None:
    """Return the `origin` and the `args` by which ``origin[args]`` has made a class of pydantic.

    None for any other class.
    """
    made = vars(cls).get("__pydantic_generic_metadata__")
    if not made or made["origin"] is None or made["origin"][made["args"]] is not cls:
        return None
    return made["origin"], made["args"]


def parametrize(origin: Any, args: object, is_restored: Callable[[type], bool]) -> type:
    """Return the one class that ``origin[args]`` is in this process.

    Only restored classes have been told of it: what their hooks made of that came with them.
    """
    with _unhooked(cls for cls in origin.__mro__ if is_restored(cls)):
        made: type = origin[args]
        return made


@contextmanager
def _unhooked(classes: Iterable[type]) -> Iterator[None]:
    """Have classes not be told of the subclasses that this thread makes meanwhile."""
    me = threading.get_ident()

    def but_for_us(own: Any) -> Any:
        def tell(cls: type, /, **given: Any) -> None:
            if threading.get_ident() != me:
                own.__get__(None, cls)(**given)

        return classmethod(tell)

    with _UNHOOKED:
        kept = [(cls, own) for cls in classes if type(own := vars(cls).get(_HOOK)) is classmethod]
        try:
            for cls, own in kept:
                type.__setattr__(cls, _HOOK, but_for_us(own))
            yield
        finally:
            for cls, own in kept:
                type.__setattr__(cls, _HOOK, own)
