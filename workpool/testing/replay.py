"""Processes that are stopped at any call, and run again from there: one half of the explorer.

A process is a picklable object with a method ``step(window, choose) -> bool``: it calls the verbs
of the window, and returns whether it goes on.  It is a deterministic function of the answers it
got, so its state *is* its pickle at the last step's end plus the tuple of answers since.  That
makes a process cheap to stop at any call, to copy, and to compare: to go on, it is run again from
its pickle with the known answers, up to the first call that has none, and once only for the same
pickle and answers: what else is still on its way it cannot know.  There are no threads, and nothing
to patch.

Prior art: replay instead of saved stacks after stateless model checking (P. Godefroid, VeriSoft,
POPL'97).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from .memory import TRANSFERS, Memory, MemoryWindow, Op

Choose = Callable[[int], int]
Watch = Callable[[Any, Memory, Op], None]
Label = Callable[[Op, Any], str]
T = TypeVar("T")

ATOMICS = frozenset({"compare_and_swap", "fetch_add"})


class Process(Protocol):
    """Something that takes steps over a window."""

    def step(self, window: MemoryWindow, choose: Choose) -> bool:
        """Do one thing; return whether there is more to do.

        ``choose(n)`` returns any of ``range(n)``; 0 is the ordinary course of things, which alone
        is counted on to reach an end.
        """


class Pause(BaseException):
    """Raised by the window where a process is to stop; it does not catch it."""


class Failed(Exception):
    """A process raised an exception after a call, or a call broke a rule."""

    def __init__(self, label: str) -> None:
        self.label = label


class _Call(NamedTuple):
    """A call that a process has begun."""

    op: Op
    answer: Any = None  # None as long as it has not happened


@dataclass(frozen=True)
class _End:
    """What a process has become at the end of a step."""

    root: int
    ended: bool


class Local(NamedTuple):
    """The state of one process."""

    root: int  # number of its pickle at the end of the last step
    answers: tuple[Any, ...] = ()  # since then
    begun: tuple[_Call, ...] = ()  # what no flush, and no end of a batch, has completed
    alive: bool = True
    ended: bool = False


class Event(NamedTuple):
    """What may happen next to one process."""

    memory: int  # after it
    local: int  # after it
    sure: bool  # whether it happens sooner or later, if nothing else does
    op: Op
    answer: Any


class Numbers(dict[T, int]):
    """Numbers for values, in the order in which they are first asked for."""

    def __init__(self) -> None:
        self.order: list[T] = []  # the values by number

    def __missing__(self, value: T) -> int:
        number = self[value] = len(self.order)
        self.order.append(value)
        return number

    def all(self, values: Iterable[T]) -> list[int]:
        """Return the numbers of many values."""
        return [*map(self.__getitem__, values)]


def show(op: Op, answer: Any = None) -> str:
    """Return a call, and its answer if it has one, as a person reads it."""
    verb, *arguments = op
    text = f"{verb}({', '.join(f'{argument!r:.80}' for argument in arguments)})"
    return text if answer is None else f"{text} -> {answer!r:.80}"


def changes(op: Op) -> bool:
    """Return whether a call may change the memory."""
    verb, *arguments = op
    if verb == "compare_and_swap":
        return bool(arguments[1] != arguments[2])
    return verb in ("put", "accumulate") or (verb == "fetch_add" and arguments[1] != 0)


class Replay:
    """The states of processes and of the memory, each by a number of its own.

    Parameters
    ----------
    nbytes : int
        Size of the window.
    watch : callable or None
    eager, late, ordered : bool
    label : callable
        As of ``Explorer``.

    Attributes
    ----------
    lines : list of dict
        The memories by number, as ``Memory`` takes them.
    locals : Numbers
        States of processes.
    objects : list
        Processes at the end of their last step, by number of the pickle.
    ops : dict of int to Op
        The next call of a living local state.
    """

    def __init__(
        self,
        nbytes: int,
        watch: Watch | None,
        eager: bool,
        late: bool,
        ordered: bool,
        label: Label,
    ) -> None:
        self.lines: list[dict[int, bytes]] = []
        self.locals: Numbers[Local] = Numbers()
        self.objects: list[Any] = []
        self.ops: dict[int, Op] = {}
        self._nbytes = nbytes
        self._watch = watch
        self._eager = eager
        self._late = late
        self._ordered = ordered
        self._label = label
        self._memories: Numbers[frozenset[tuple[int, bytes]]] = Numbers()
        self._roots: Numbers[bytes] = Numbers()
        self._next: dict[tuple[int, tuple[Any, ...]], Op | _End] = {}  # by root and answers since
        self._reached: dict[Local, int] = {}  # where a local state moves on to by itself
        self._deaths: dict[int, int] = {}  # by local state

    def start(self, name: str, process: Process) -> int:
        """Return the number of a process's first state."""
        return self._moved(Local(self._root(process)), ("the start", name), None)

    def note(self, memory: Memory) -> int:
        """Return the number of a memory."""
        number = self._memories[memory.key()]
        if number == len(self.lines):
            self.lines.append(dict(memory.lines))
        return number

    def dead(self, local: int) -> int:
        """Return what a local state becomes at a death."""
        if local not in self._deaths:
            root, _, begun, _, _ = self.locals.order[local]
            left = [call.op for call in begun if call.answer is None] + [self.ops[local]]
            late = tuple(_Call(op) for op in left if self._late and changes(op))
            self._deaths[local] = self.locals[Local(root, (), late, alive=False)]
        return self._deaths[local]

    def perform(self, memory: int, local: int) -> Iterator[Event]:
        """Yield what may happen next to one process in one memory."""
        root, answers, begun, alive, _ = known = self.locals.order[local]
        early = self._eager or not alive
        for i, call in enumerate(begun):
            if call.answer is None and (early or call.op[0] in ATOMICS):
                content, answer = self._happen(memory, root, call.op)
                rest = begun[i + 1 :]
                if alive and answer is not None:  # which the process still wants to know
                    rest = (_Call(call.op, answer), *rest)
                after = known._replace(begun=begun[:i] + rest)
                yield self._event(content, after, alive, call.op, answer)
                if self._ordered and call.op[0] in ATOMICS:
                    break  # nothing is begun after them
        op = self.ops.get(local)
        if op is None:  # dead, or ended
            return
        if op[0] == "choose":
            for choice in range(op[1]):
                after = known._replace(answers=(*answers, choice))
                yield self._event(memory, after, choice == 0, op, choice)
        elif op[0] in ATOMICS:
            content, answer = self._happen(memory, root, op)
            yield self._event(content, known._replace(answers=(*answers, answer)), True, op, answer)
        elif op[0] == "flush" and not self._eager:
            calls = []
            content = memory
            for call in begun:
                content, answer = self._happen(content, root, call.op)
                calls.append(_Call(call.op, () if answer is None else answer))
            yield self._event(content, known._replace(begun=tuple(calls)), True, op, None)

    def _happen(self, memory: int, root: int, op: Op) -> tuple[int, Any]:
        """Let one call take effect: number of the memory after it, and its answer."""
        lines = self.lines[memory]
        content = Memory(lines)
        try:
            if self._watch is not None:
                self._watch(self.objects[root], content, op)
            answer = content.perform(op)
        except Exception as error:
            raise Failed(f"at {self._label(op, None)}") from error
        return (memory if content.lines == lines else self.note(content)), answer

    def _event(self, memory: int, after: Local, sure: bool, op: Op, answer: Any) -> Event:
        return Event(memory, self._moved(after, op, answer), sure, op, answer)

    def _moved(self, local: Local, last: Op, answer: Any) -> int:
        """Return the number of a local state, moved on to the next call that others can notice."""
        start = local
        number = self._reached.get(start)
        if number is not None:
            return number
        op: Op | None = None
        while local.alive and not local.ended and op is None:
            try:
                local, op = self._resume(local)
            except Exception as error:
                raise Failed(f"after {self._label(last, answer)}") from error
        number = self._reached[start] = self.locals[local]
        if op is not None:
            self.ops[number] = op
        return number

    def _resume(self, local: Local) -> tuple[Local, Op | None]:
        """Take a process on to the next call that others can notice, or to the end of its step.

        Nobody can notice that a transfer begins, nor a flush before which everything has happened.
        """
        root, answers, begun = local.root, local.answers, local.begun
        while isinstance(op := self._doing(root, answers), tuple):
            verb = op[0]
            answer = None
            if verb in TRANSFERS:
                begun = (*begun, _Call(op))
            elif verb == "flush" and all(call.answer is not None for call in begun):
                answer = tuple(call.answer for call in begun if call.op[0] == "get")
                begun = ()
            elif verb == "compare_and_swap_all":
                batch = [call for call in begun if call.op[0] in ATOMICS]
                if not batch:
                    batch = [_Call(("compare_and_swap", *step)) for step in op[1:]]
                    begun = (*begun, *batch)
                if not all(call.answer is not None for call in batch):
                    return local._replace(answers=answers, begun=begun), op
                answer = tuple(call.answer for call in batch)
                begun = tuple(call for call in begun if call.op[0] not in ATOMICS)
            else:
                return local._replace(answers=answers, begun=begun), op
            answers = (*answers, answer)
        assert not any(call.op[0] == "get" for call in begun), "a get that no flush completes"
        return Local(op.root, (), begun, ended=op.ended), None

    def _doing(self, root: int, answers: tuple[Any, ...]) -> Op | _End:
        """Return a process's next call after so many answers, or what it is when its step ends."""
        if (root, answers) not in self._next:
            self._run(root, answers)
        return self._next[root, answers]

    def _run(self, root: int, answers: tuple[Any, ...]) -> None:
        """Run a process on from known answers, and note its calls up to one that is answered."""
        process = pickle.loads(self._roots.order[root])
        known = iter(answers)

        def perform(op: Op) -> Any:
            nonlocal answers
            for answer in known:
                return answer
            self._next[root, answers] = op
            if op[0] not in TRANSFERS:
                raise Pause
            answers = (*answers, None)
            return None

        window = MemoryWindow(self._nbytes, perform)
        try:
            goes_on = process.step(window, lambda count: perform(("choose", count)))
        except Pause:
            return
        self._next[root, answers] = _End(self._root(process), not goes_on)

    def _root(self, process: Any) -> int:
        number = self._roots[pickle.dumps(process)]
        if number == len(self.objects):
            self.objects.append(pickle.loads(self._roots.order[number]))
        return number
