"""Enumerations of the script: built again with their members as they are.

cloudpickle makes each member anew, of its value alone and by a class that is still empty.  What
``__init__`` or ``__new__`` have made of a member would be missing then, members that are instances
of a dataclass would be others, and second names of a member unknown.  Here a member is made as the
text or number that it is, and gets its value and its attributes.
"""

from __future__ import annotations

import copyreg
from enum import Enum, Flag
from typing import Any, Final, TypeAlias

from .atoms import ATOMS

_BUILT: Final = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_"})
"""Attributes of a member that it has as soon as it is made, or comes to by itself."""

_Member: TypeAlias = tuple[tuple[Any, ...], object]
"""What ``__new__`` of its type of data gets, and its value."""


def _data(member: Any) -> tuple[Any, ...] | None:
    """Return what ``__new__`` of a member's type of data gets; None if there is more to it."""
    if type(member)._member_type_ is object:
        return ()
    try:  # past the ``__reduce_ex__`` of Enum, which finds a member by its value
        reduced: Any = object.__reduce_ex__(member, 2)
    except Exception:  # the type's own code
        return None
    make, args, *rest = reduced
    if any(rest[1:]) or not (rest[:1] in ([], [None]) or isinstance(rest[0], dict)):
        return None
    if make is copyreg.__newobj__:  # type: ignore[attr-defined]  # not in typeshed
        return tuple(args[1:])
    return tuple(args) if make is type(member) else None


def _make_enumeration(
    bases: tuple[type, ...],
    name: str,
    qualname: str,
    members: dict[str, _Member],
    module: str,
    metaclass: Any,
    options: dict[str, Any],
) -> type:
    """Return an enumeration with its members, which have no attributes of their own yet."""

    def make(cls: Any, number: Any) -> Any:
        # In a tuple where the members are tuples.
        args, value = numbered[number[0] if isinstance(number, tuple) else number]
        member = cls._member_type_.__new__(cls, *args)
        member._value_ = value
        return member

    numbered = list(members.values())
    content = metaclass.__prepare__(name, bases)
    content.update({"__module__": module, "__qualname__": qualname})
    content["__new__"], content["__init__"] = make, lambda member, *args: None
    for number, key in enumerate(members):
        content[key] = number
    made: type = metaclass.__new__(metaclass, name, bases, content, **options)
    for own in ("__init__", "__new_member__"):  # those of the script, if any, are in the state
        if own in vars(made):
            delattr(made, own)
    return made


def _fill_enumeration(cls: Any, state: tuple[Any, ...]) -> None:
    *content, setter, attributes = state
    setter(cls, tuple(content))
    for name, member in cls.__members__.items():
        if name == member.name:
            own = attributes.get(name, {})
            for key in own_attributes(member).keys() - own.keys():  # a task has added it
                del vars(member)[key]
            vars(member).update(own)


def own_attributes(member: Any) -> dict[str, Any]:
    """Return the attributes that a member has from the script."""
    return {key: value for key, value in vars(member).copy().items() if key not in _BUILT}


def reduce_enumeration(cls: Any, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how to rebuild an enumeration, from how cloudpickle would."""
    members: dict[str, _Member] = {}
    attributes: dict[str, dict[str, Any]] = {}
    for name, member in cls.__members__.items():
        data = _data(member)
        if data is None:
            return reduced
        members[name] = data, member._value_
        own = own_attributes(member)
        if isinstance(member._value_, (list, dict, set)):
            own["_value_"] = member._value_
        if own and name == member.name:
            attributes[name] = own
    _, (bases, name, qualname, _, module, *_), (content, slots), _, _, setter = reduced
    boundary = getattr(cls, "_boundary_", None)
    options = {} if boundary is None else {"boundary": boundary}
    args = bases, name, qualname, members, module, type(cls), options
    left = {key: value for key, value in content.items() if key not in members}
    state = left, slots, setter, attributes
    return _make_enumeration, args, state, None, None, _fill_enumeration


_BY_VALUE: Final[frozenset[Any]] = frozenset({Enum.__reduce_ex__, Flag.__reduce_ex__})
"""What says of a member that it is found by its value, unless its class says something else."""


def reduce_member(member: Any) -> Any:
    """Return how to find a member of an enumeration; NotImplemented leaves it to pickle.

    That finds it by its value.  What is equal to nothing else, and functions of the script, which
    are others when they are restored, would not be found.
    """
    kind, name = type(member), member._name_
    by_value = type(member._value_) in ATOMS or name not in kind.__members__  # flags of several
    if by_value or kind.__reduce_ex__ not in _BY_VALUE:
        return NotImplemented
    return _find_member, (kind, name)


def _find_member(enumeration: Any, name: str) -> Any:
    return enumeration.__members__[name]
