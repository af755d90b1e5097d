"""A warning for programs that set something in a module, and whose tasks use that module.

``jax.config.update("jax_enable_x64", True)``, or ``decimal.getcontext().prec = 50``, in a script
holds in the processes of a pool that forks, or imports the script on each worker.  Here the workers
run nothing of the script, and what its tasks compute might be something else without a word.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from types import FunctionType, ModuleType
from typing import NamedTuple

from ...serializer import reads, task_name
from .warned import warn

#: How functions are named that set something.
_SETS = re.compile("set|use$|update|enable|disable|register")

#: What is in statements that say how to show numbers and tables, which most tasks do not.
_SHOWS = re.compile("print|display")

#: Modules whose settings workers have, or of which others warn, or that concern no task.
_SEEN_TO = {"logging", "mpi4py", "os", "sys", "warnings", "workpool"}

#: How a statement begins that may set something, and the name at its start.  To look for one takes
#: a hundredth of the time in which a script is parsed.
_PERHAPS = re.compile(
    r"^([^\W\d]\w*)\b[^=\n#]*?"
    r"(?:(?:\.\w+|\]) *\W{0,2}=(?!=)|\b(?:set|use|update|enable|disable|register))",
    re.MULTILINE,
)

#: Where a script imports what it has under a name.
_IMPORT = r"^ *(?:from|import)\b(?:.*|.*\([^)]*)\b{}\b"


class _Setting(NamedTuple):
    """A statement of the script."""

    package: str  # in which it sets something
    name: str  # by which the script knows that, or a part of it
    line: int
    text: str


class SettingCheck:
    """Looks whether functions use a package in which their script has set something."""

    def __init__(self) -> None:
        self._told: set[int] = set()  # lines

    def look(self, function: FunctionType) -> None:
        """Warn if a function does, once of each setting."""
        imports, settings = _settings(function.__globals__.get("__file__"))
        if not settings:
            return
        used = {name: value for name, value in reads(function) if name in imports}
        for setting in settings:
            uses = any(
                imports[name] == setting.package
                # What is no module comes along as it is set.
                and (name != setting.name or isinstance(value, ModuleType))
                for name, value in used.items()
            )
            if uses and setting.line not in self._told:
                self._told.add(setting.line)
                warn(
                    f"{task_name(function)} uses {setting.package}, in which line {setting.line} "
                    f"of the script sets something that the workers have not set, "
                    f"`{setting.text}`: do it in the pool's initializer as well"
                )


@functools.lru_cache(maxsize=8)
def _settings(file: str | None) -> tuple[dict[str, str], list[_Setting]]:
    """Return the packages of what a script has imported, by its name, and what it sets in them.

    In statements that stand for themselves: what is in others may not have been carried out.
    """
    text = "".join(linecache.getlines(file)) if file else ""
    names = {found[1] for found in _PERHAPS.finditer(text)}
    if not any(re.search(_IMPORT.format(name), text, re.MULTILINE) for name in names):
        return {}, []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # it is no text, or was edited meanwhile
        return {}, []
    imports: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(aliases):
                for alias in aliases:
                    top = alias.name.partition(".")[0]
                    imports[alias.asname or top] = top
            case ast.ImportFrom(str(module), aliases, 0):
                top = module.partition(".")[0]
                imports.update((alias.asname or alias.name, top) for alias in aliases)
    settings = []
    for node in tree.body:
        name = _set_by(node)
        if name in imports and imports[name] not in _SEEN_TO:
            said = ast.unparse(node)
            if not _SHOWS.search(said):
                said = said if len(said) <= 60 else f"{said[:57]}..."
                settings.append(_Setting(imports[name], name, node.lineno, said))
    return imports, settings


def _set_by(node: ast.stmt) -> str:
    """Return the name of what a statement sets something in; "" if it does nothing of that kind."""
    match node:
        case ast.Assign([ast.Attribute() | ast.Subscript() as target]):
            return _root(target)
        case ast.AugAssign(ast.Attribute() | ast.Subscript() as target):
            return _root(target)
        case ast.Expr(ast.Call(ast.Attribute(_, called) | ast.Name(called) as function)):
            return _root(function) if _SETS.match(called) else ""
    return ""


def _root(expression: ast.expr) -> str:
    """Return the name with which an expression begins, such as ``a`` of ``a.b().c``."""
    while True:
        match expression:
            case ast.Attribute(value) | ast.Subscript(value) | ast.Call(value):
                expression = value
            case ast.Name(name):
                return name
            case _:
                return ""
