"""A warning for programs whose tasks take the driver's rank for their own.

A script that each rank runs, or imports, asks for its rank at the top, and its functions read that.
Here tasks have copies of what the driver has: its rank, in every task.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from types import FunctionType, ModuleType
from typing import Any

from ...serializer import reads, task_name
from .warned import warn


def look(fn: object, function: FunctionType, is_own_rank: Callable[[int, object], bool]) -> None:
    """Warn if a function that runs in tasks of `fn` reads what the script was told of its rank.

    `is_own_rank` tells whether a number is this rank's in a communicator, and no worker's.
    """
    code, names = function.__code__, function.__globals__
    for name, value in reads(function):
        if type(value) is int and name not in code.co_freevars:
            asked = _asked(names.get("__file__")).get(name)
            if asked is not None and is_own_rank(value, _found(asked, names)):
                warn(
                    f"{task_name(fn)} reads {name!r} of the script, which is the driver's rank on "
                    "every worker: ask there for its own, or in the initializer (global "
                    f"{name})"
                )


@functools.lru_cache(maxsize=8)
def _asked(file: str | None) -> dict[str, ast.expr]:
    """Return the names that a script gives to nothing but its rank, and in which communicator.

    None of those that a function assigns: it may be an initializer.
    """
    text = "".join(linecache.getlines(file)) if file else ""
    try:
        nodes = list(ast.walk(ast.parse(text))) if "rank" in text else []
    except (SyntaxError, ValueError, RecursionError):  # it is no text, or was edited meanwhile
        return {}
    found: dict[str, ast.expr] = {}
    others: Counter[str] = Counter()
    for node in nodes:
        match node:
            case ast.Name(name, ast.Store()):
                others[name] += 1
            case ast.Global(names):
                others.update(names)
            case ast.Assign() | ast.AnnAssign():
                mine = dict(_assigned(node))
                others.subtract(mine.keys())
                found.update(mine)
    return {name: comm for name, comm in found.items() if not others[name]}


def _assigned(node: Any) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that is given ``comm.Get_rank()`` or ``comm.rank``, and what `comm` is."""
    values = getattr(node.value, "elts", [node.value])
    targets = getattr(node, "targets", None) or [node.target]  # one, if it has an annotation
    pairs = chain(*(zip(getattr(it, "elts", [it]), values, strict=False) for it in targets))
    for pair in pairs:
        match pair:
            case ast.Name(name), ast.Call(ast.Attribute(comm, "Get_rank")):
                yield name, comm
            case ast.Name(name), ast.Attribute(comm, "rank"):
                yield name, comm


def _found(expression: ast.expr, names: dict[str, Any]) -> object:
    """Return what a name of the script stands for, or one of a module; None if it is neither."""
    match expression:
        case ast.Name(name):
            return names.get(name)
        case ast.Attribute(ast.Name(module), name) if isinstance(names.get(module), ModuleType):
            return getattr(names[module], name, None)
    return None
