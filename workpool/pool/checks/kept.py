"""A warning for programs whose tasks keep something in the script for the tasks that come later.

``global model; if model is None: model = load()`` loads once in each process of a pool that forks,
or imports the script on each worker; so does what fills a dict, or sets an attribute of a class.
Here each task has copies of what the script has: it finds nothing there, and loads again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from types import FunctionType, ModuleType

from ...interrupts import FAILURES
from ...lazy import dis
from ...serializer import reads, task_name
from ...serializer.names import bound_names
from .warned import warn

_CONTAINERS = (Counter, OrderedDict, defaultdict, deque, dict, list, set)

#: Methods by which they are filled, and other steps that keep something.
_FILL = {"add", "append", "extend", "update"}
_SET = {"STORE_ATTR", "STORE_SUBSCR"}


def look(function: FunctionType) -> None:
    """Warn if a function makes what it finds not there, as it is not there on the driver."""
    for what in dict.fromkeys(_made(function)):
        warn(
            f"{task_name(function)} {what}, as it is again in each task: keep it in a global that "
            "the pool's initializer makes, or in a function with functools.cache, which keeps it "
            "on each worker"
        )


def _made(function: FunctionType) -> Iterator[str]:
    code, names = function.__code__, function.__globals__
    bound, called = bound_names(code), {"setdefault", *_FILL} & {*code.co_names}
    if not (bound or called or _SET & {dis.opname[operation] for operation in code.co_code[::2]}):
        return
    steps = list(dis.get_instructions(code))
    for name in _made_late(steps, bound):
        if names.get(name, function) is None:
            yield f"makes the global {name!r} of the script where that is None"
    holders = {name: value for name, value in reads(function) if not isinstance(value, ModuleType)}
    cls = names.get(function.__qualname__.rpartition(".")[0])
    if cls is not None and code.co_varnames[:1] == ("cls",):
        holders["cls"] = cls
    empty = {name for name, it in holders.items() if type(it) in _CONTAINERS and not it}
    loads = Counter(map(loaded, steps))
    seen: set[object] = set()  # attributes that were looked at: what is only set is no search
    for at, step in enumerate(steps):
        operation, argument = step.opname, step.argval
        name = loaded(steps[at - 1])
        filled = ""
        if operation in ("LOAD_ATTR", "LOAD_METHOD"):
            seen.add((name, argument))
            if name in empty and argument in called:
                filled = name
        elif operation == "LOAD_CONST":
            seen.add(argument)  # of hasattr
        elif operation == "STORE_ATTR" and name in holders and {argument, (name, argument)} & seen:
            if _lacks(holders[name], argument):
                yield f"sets {name}.{argument} of the script, which is None or not there"
        elif operation == "STORE_SUBSCR" and (name := indexed(steps[:at])) in empty:
            filled = name
        if filled and (loads[filled] > 1 or argument == "setdefault"):
            yield f"fills {filled!r} of the script, which is empty"


def loaded(step: dis.Instruction) -> str:
    """Return the name of the variable that a step loads, the last one of two."""
    if not step.opname.startswith("LOAD_") or "CONST" in step.opname:
        return ""
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return str(names[-1])


def indexed(steps: Sequence[dis.Instruction]) -> str:
    """Return the name of what steps have put on the stack to assign an item of it.

    The stack has the value, that, and the index; of ``+=`` the value was the last to come.
    """
    height = -2 if steps[-1].opname in ("SWAP", "ROT_THREE") else -1
    for step in reversed(steps):
        height += dis.stack_effect(step.opcode, step.arg, jump=False)
        if height > 0:
            return loaded(step)
    return ""


def _lacks(value: object, attribute: str) -> bool:
    with suppress(*FAILURES):  # the program's own code may be called for it
        return getattr(value, attribute, None) is None
    return False


def _made_late(steps: Sequence[dis.Instruction], bound: Set[str]) -> list[str]:
    """Return those of the globals that some code binds which it reads before it does."""
    first: dict[str, str] = {}
    for step in steps:
        if "GLOBAL" in step.opname and step.argval in bound:
            first.setdefault(step.argval, step.opname)
    return [name for name, operation in first.items() if operation == "LOAD_GLOBAL"]
