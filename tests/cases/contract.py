"""The contract of an Executor, one small function for each clause.

The same cases run on the standard library's ThreadPoolExecutor, which is the oracle: where it and
WorkPool disagree, a case is wrong or WorkPool is. Cases that only processes can fail (what crosses
between ranks, remote tracebacks) are marked, and run on WorkPool alone.

Here is what the tasks run, and the clauses about what the script itself has; the other clauses are
in the modules ``contract_...``. Nothing in them sleeps to put events in order: tasks meet at a
:class:`runner.Gate`.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from runner import main, until

logging.getLogger("concurrent.futures").setLevel(logging.CRITICAL + 1)  # callbacks fail on purpose

# What the tasks run. All of it belongs to this script, so all of it crosses by value.

FACTOR = 1
STEPS: list[int] = []


def same(value: Any) -> Any:
    """Return what came."""
    return value


def echo(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return every argument as it came."""
    return args, kwargs


level = 0


def read_level() -> int:
    """Return a global that a task may have changed."""
    return level


class Level:
    """Reads what a task changes."""

    def __call__(self) -> int:
        """Return it."""
        return level


def change_level(read: Callable[[], int], value: int) -> int:
    """Change a global, and return what an argument reads."""
    global level
    level = value
    return read()


def touch(place: str, name: object) -> object:
    """Leave a file behind, which proves that this task has run."""
    Path(place, str(name)).touch()
    return name


def meet(place: str, name: object, number: int) -> int:
    """Return when `number` tasks are here at the same time."""
    Path(place, str(name)).touch()
    until(lambda: len(os.listdir(place)) >= number, f"{number} tasks to meet")
    return number


def fail(error: BaseException) -> None:
    """Raise what is given."""
    raise error


def fail_at(number: int, wrong: int) -> int:
    """Return `number`, unless it is the wrong one."""
    if number == wrong:
        raise Refused(number, "the wrong one")
    return number


def inverse(number: int) -> float:
    """Raise ZeroDivisionError for 0."""
    return 1 / number


def scaled(number: int) -> int:
    """Read a global that the script changes later."""
    return FACTOR * number


def count_steps() -> int:
    """Read a global list that the script grows later."""
    return len(STEPS)


def factorial(number: int) -> int:
    """Call itself by its global name."""
    return 1 if number < 2 else number * factorial(number - 1)


def configured() -> int:
    """Read a class attribute that the script changes later."""
    return Config.level


def whole_sum(values: np.ndarray) -> float:
    """Return a sum as a plain number."""
    return float(values.sum())


class Config:
    """Holds what `configured` reads."""

    level = 1


class Colour(Enum):
    """An enumeration of the script."""

    RED = 1
    BLUE = 2


class Point(NamedTuple):
    """A named tuple of the script."""

    x: float
    y: float


@dataclass
class Record:
    """A dataclass of the script."""

    name: str
    points: list[Point] = field(default_factory=list)

    def total(self) -> float:
        """Sum the points' x."""
        return sum(point.x for point in self.points)


class Adder:
    """A callable object."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, number: int) -> int:
        return number + self.step

    def add(self, number: int) -> int:
        """Do the same as a method."""
        return number + self.step


class Refused(Exception):
    """An exception of the script, with attributes."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Stop(BaseException):
    """An exception of the script that is no Exception."""


class Brittle(Exception):
    """Pickle cannot rebuild it: it is called with its args, and wants one more."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code)


class Mined(Exception):
    """Pickles, and raises when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return explode, (ValueError,)


def explode(kind: type[BaseException]) -> None:
    """Stand for an object's broken ``__setstate__``."""
    raise kind("cannot be rebuilt")


class Unpickled:
    """Pickles, and raises when it is unpickled."""

    def __init__(self, kind: type[BaseException] = ValueError) -> None:
        self.kind = kind

    def __reduce__(self) -> tuple[Any, ...]:
        return explode, (self.kind,)


class Unpicklable:
    """Raises when it is pickled."""

    def __init__(self, kind: type[BaseException] = ValueError) -> None:
        self.kind = kind

    def __reduce__(self) -> tuple[Any, ...]:
        raise self.kind("cannot be taken apart")


def make_unpickled(kind: type[BaseException]) -> Unpickled:
    """Return what the driver cannot unpickle."""
    return Unpickled(kind)


def make_unpicklable(kind: type[BaseException]) -> Unpicklable:
    """Return what the worker cannot pickle."""
    return Unpicklable(kind)


def fail_mined() -> None:
    """Raise what cannot be unpickled."""
    raise Mined(3)


def fail_with(kind: type[BaseException]) -> None:
    """Raise an exception that carries what cannot be pickled."""
    raise Refused(1, Unpicklable(kind))  # type: ignore[arg-type]


def alive(pool: Any) -> None:
    """Assert that every worker still works."""
    assert sorted(pool.map(same, range(32))) == list(range(32))


def prepare(place, word):
    """Initialize a worker: leave a file behind, and set what the tasks find."""
    Path(place, f"worker-{os.getpid()}-{threading.get_ident()}").touch()
    os.environ["CONTRACT_WORD"] = word


TEMPLATE = None


def prepare_template(value):
    global TEMPLATE
    TEMPLATE = value


def prepared_template():
    return TEMPLATE


def prepare_global(word):
    """Initialize a worker with a global that the script itself does not have."""
    global PREPARED
    PREPARED = word


SETTINGS = {"level": 0, "seen": []}


def prepare_settings(level):
    """Initialize a worker by filling what the script has, in place."""
    SETTINGS["level"] = level
    SETTINGS["seen"].append(level)


def prepared_level():
    return SETTINGS["level"], len(SETTINGS["seen"]) > 0


def outcome_of(function, *args):
    return function(*args)


def prepared():
    """Return what the initializer left in the environment."""
    return os.environ.get("CONTRACT_WORD")


def prepared_global():
    """Return what the initializer left in a global of the script."""
    return PREPARED


# A later change is seen by later tasks, and so is what an initializer has set.


def case_later_change_of_a_global(pool):
    global FACTOR
    for FACTOR in (1, 2, 3):
        assert pool.submit(scaled, 10).result() == 10 * FACTOR
    FACTOR = 1


def case_later_growth_of_a_global_list(pool):
    before = len(STEPS)
    for n in range(3):
        assert pool.submit(count_steps).result() == before + n
        STEPS.append(n)


def case_later_definition_of_a_global_function(pool):
    original = globals()["same"]
    caller = types.FunctionType((lambda x: same(x)).__code__, globals())
    try:
        assert pool.submit(caller, 1).result() == 1
        globals()["same"] = lambda value: value + 100
        assert pool.submit(caller, 1).result() == 101
    finally:
        globals()["same"] = original


def case_later_change_of_a_closure_cell(pool):
    level = 1

    def read():
        return level

    assert pool.submit(read).result() == 1
    level = 2
    assert pool.submit(read).result() == 2


def case_later_change_of_a_class_attribute(pool):
    for level in (1, 2, 3):
        Config.level = level
        assert pool.submit(configured).result() == level


def case_later_change_between_the_items_of_two_maps(pool):
    global FACTOR
    for FACTOR in (5, 6):
        assert list(pool.map(scaled, range(20))) == [FACTOR * n for n in range(20)]
    FACTOR = 1


def case_initializer_sets_a_global_that_tasks_read(make):
    with make(initializer=prepare_global, initargs=("once",)) as pool:
        assert pool.submit(prepared_global).result() == "once"


def case_initializer_overrides_what_the_script_has(make):
    with make(initializer=prepare_template, initargs=([1, 2],)) as pool:
        assert pool.submit(prepared_template).result() == [1, 2]
        assert list(pool.map(lambda n: TEMPLATE[n], [0, 1])) == [1, 2]
    with make(initializer=prepare_template, initargs=([3],)) as pool:
        assert pool.submit(prepared_template).result() == [3]


def case_initializer_is_seen_by_functions_among_the_arguments(make):
    with make(initializer=prepare_template, initargs=([1, 2],)) as pool:
        assert pool.submit(outcome_of, prepared_template).result() == [1, 2]
        partial = functools.partial(outcome_of, prepared_template)
        assert pool.submit(partial).result() == [1, 2]
        assert list(pool.map(outcome_of, [prepared_template] * 3)) == [[1, 2]] * 3
        assert pool.submit(outcome_of, lambda: TEMPLATE[1]).result() == 2


def case_initializer_fills_what_the_script_has(make):
    with make(initializer=prepare_settings, initargs=(7,)) as pool:
        assert pool.submit(prepared_level).result() == (7, True)
        assert pool.submit(outcome_of, prepared_level).result() == (7, True)


if __name__ == "__main__":
    sys.exit(main(globals()))
