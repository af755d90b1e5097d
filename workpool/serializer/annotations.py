"""Annotations, which from Python 3.14 on are worked out only when somebody asks for them.

They are sent as they are then.  A name in them may stand for nothing, because it is imported for a
type checker alone: the function works all the same.  So where they cannot be worked out they go as
text, which is what ``from __future__ import annotations`` makes of them.
"""

from __future__ import annotations

import typing
from importlib import import_module
from typing import Any

from ..interrupts import failures


def annotations_of(definition: Any) -> dict[str, Any]:
    """Return the annotations of a function or class, or their text."""
    try:
        found: dict[str, Any] = definition.__annotations__
    except failures():
        return _text_of(definition)
    return found


def _text_of(definition: Any) -> dict[str, Any]:
    library: Any = import_module("annotationlib")  # there is one from Python 3.14 on
    text: dict[str, Any] = library.get_annotations(definition, format=library.Format.STRING)
    return text


def reduce_forward_ref(ref: typing.ForwardRef) -> tuple[Any, ...]:
    """Return how to pickle a reference without what it has of the script: all its globals."""
    said = ref.__forward_arg__, ref.__forward_module__, ref.__forward_is_class__
    return _make_forward_ref, said


def _make_forward_ref(text: str, module: Any, is_class: bool) -> typing.ForwardRef:
    return typing.ForwardRef(text, module=module, is_class=is_class)
