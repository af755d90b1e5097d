"""Exceptions come back as they were raised; what cannot cross fails on its future."""

from __future__ import annotations

import builtins
import contextlib
import copy
import errno
import re
import socket
import sys
import threading

from contract_callbacks import case_callback_runs_though_nobody_waits
from runner import PATIENCE_S, SHARED, Skip, only, raises, until

from __main__ import (
    Brittle,
    Refused,
    Stop,
    Unpicklable,
    Unpickled,
    alive,
    fail,
    fail_at,
    fail_mined,
    fail_with,
    inverse,
    make_unpicklable,
    make_unpickled,
    same,
)

# Exceptions.


def case_exceptions_keep_type_and_args(pool):
    for error in (
        ValueError("bad", 3),
        KeyError("key"),
        OSError(errno.ENOENT, "gone", "file"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"),
        ZeroDivisionError(),
        StopIteration(4),
        ImportError("no", name="n"),
        AssertionError([1, {"two": 2}]),
    ):
        caught = pool.submit(fail, error).exception()
        assert type(caught) is type(error)
        assert caught.args == error.args
        assert str(caught) == str(error)
    assert pool.submit(fail, OSError(errno.ENOENT, "gone", "f")).exception().filename == "f"


def case_result_raises_the_exception(pool):
    with raises(ZeroDivisionError) as caught:
        pool.submit(inverse, 0).result()
    assert caught[0].args == ("division by zero",)


def case_exception_of_the_script_is_caught_by_its_class(pool):
    with raises(Refused) as caught:
        pool.submit(fail_at, 3, 3).result()
    assert type(caught[0]) is Refused
    assert (caught[0].code, caught[0].reason) == (3, "the wrong one")


def case_exception_class_made_inside_a_function(pool):
    class LocalError(Exception):
        pass

    with raises(LocalError):
        pool.submit(fail, LocalError("here")).result()


def case_notes_of_an_exception_cross(pool):
    if not hasattr(BaseException, "add_note"):
        raise Skip("exceptions have notes from Python 3.11")
    error = ValueError("bad")
    error.add_note("look here")
    assert "look here" in pool.submit(fail, error).exception().__notes__


def case_exception_group(pool):
    if not hasattr(builtins, "ExceptionGroup"):
        raise Skip("exception groups come with Python 3.11")
    group = builtins.ExceptionGroup("two", [ValueError(1), KeyError(2)])
    caught = pool.submit(fail, group).exception()
    assert [type(error) for error in caught.exceptions] == [ValueError, KeyError]


def case_base_exceptions_land_on_the_future_and_the_worker_lives(pool):
    for kind in (SystemExit, KeyboardInterrupt, GeneratorExit, Stop):
        caught = pool.submit(fail, kind(3)).exception()
        assert type(caught) is kind
        assert caught.args == (3,)
    assert isinstance(pool.submit(sys.exit, 5).exception(), SystemExit)
    alive(pool)


def case_an_exception_that_is_returned_is_a_result(pool):
    future = pool.submit(same, ValueError("kept"))
    assert isinstance(future.result(), ValueError)
    assert future.exception() is None


@only("workpool", SHARED)
def case_remote_traceback_names_function_rank_and_host(pool):
    error = pool.submit(inverse, 0).exception()
    text = str(error.__cause__)
    assert "inverse" in text, text
    assert "ZeroDivisionError" in text, text
    assert re.search(r"\brank \d+", text, re.IGNORECASE), text
    assert socket.gethostname() in text, text


@only("workpool", SHARED)
def case_remote_traceback_shows_the_causes_of_the_exception(pool):
    def chained():
        try:
            inverse(0)
        except ZeroDivisionError as error:
            raise KeyError("outer") from error

    text = str(pool.submit(chained).exception().__cause__)
    assert "ZeroDivisionError" in text, text
    assert "direct cause" in text, text


@only("workpool", SHARED)
def case_remote_traceback_of_base_exceptions(pool):
    error = pool.submit(fail, SystemExit(2)).exception()
    assert "fail" in str(error.__cause__)


# What cannot cross fails on its future, and the worker lives.


def serialization_fails(pool, *call):
    from workpool.errors import SerializationError

    error = pool.submit(*call).exception(timeout=PATIENCE_S)
    assert isinstance(error, SerializationError), repr(error)
    assert str(error)
    assert error.__traceback__ is None  # which would be ours
    alive(pool)


@only("workpool", SHARED)
def case_what_a_map_cannot_restore_is_named(pool):
    from workpool.errors import SerializationError

    for function, items, named in (
        (Unpickled(), range(100), "the function of a map"),
        (same, [Unpickled()] * 100, "items 0 to 99 of a map"),
    ):
        with raises(SerializationError) as caught:
            list(pool.map(function, items))
        assert f"cannot restore {named}: ValueError: cannot be rebuilt; " in str(caught[0])
        assert "read what a module has as module.name" in str(caught[0])
    alive(pool)


@only("workpool", SHARED)
def case_futures_stay_with_the_driver(pool):
    error = pool.submit(same, pool.submit(same, 1)).exception(timeout=PATIENCE_S)
    assert "cannot be sent to a task" in str(error), error
    alive(pool)


@only("workpool", SHARED)
def case_tasks_that_refer_to_a_pool_and_do_not_use_it(pool):
    class Study:
        """Its tasks need no pool, and come with one."""

        def __init__(self, pool):
            self.pool = pool

        def run(self, numbers):
            return list(self.pool.map(self.step, numbers))

        def step(self, number):
            return number + 1

    def down(number):
        return pool.submit(down, number - 1).result() if number > 9 else number

    assert Study(pool).run(range(40)) == list(range(1, 41))
    assert pool.submit(down, 3).result(timeout=PATIENCE_S) == 3
    error = pool.submit(down, 10).exception(timeout=PATIENCE_S)
    assert type(error).__name__ == "UsageError", error
    assert "a task cannot use a pool" in str(error), error


@only("workpool", "what it copies of a ThreadPoolExecutor is no pool")
def case_a_copy_of_what_has_a_pool_has_the_same(pool):
    assert copy.deepcopy([pool])[0].submit(same, 3).result(PATIENCE_S) == 3
    assert copy.copy(pool).submit(same, 4).result(PATIENCE_S) == 4


@only("workpool", SHARED)
def case_a_pool_is_of_no_use_in_a_task(pool):
    uses = [
        lambda pool: pool.submit(same, 1),
        lambda pool: pool.map(same, [1]),
        lambda pool: pool.starmap(same, [(1,)]),
        lambda pool: pool.reduce(same, [1]),
        lambda pool: pool.with_options(retries=1),
        lambda pool: pool.accumulator(),
        lambda pool: pool.stats(),
        lambda pool: pool.num_workers,
        lambda pool: pool.shutdown(),
    ]
    for use in uses:
        error = pool.submit(use, pool).exception(timeout=PATIENCE_S)
        assert "a task cannot use a pool" in str(error), error
    assert pool.submit(repr, pool).result(timeout=PATIENCE_S) == "<View: of the driver>"
    alive(pool)


@only("workpool", SHARED)
def case_argument_that_cannot_be_pickled(pool):
    serialization_fails(pool, same, threading.Lock())
    serialization_fails(pool, same, Unpicklable())
    serialization_fails(pool, same, (n for n in ()))


@only("workpool", SHARED)
def case_function_that_cannot_be_pickled(pool):
    lock = threading.Lock()
    serialization_fails(pool, lambda: lock.locked())


@only("workpool", SHARED)
def case_argument_that_cannot_be_unpickled(pool):
    serialization_fails(pool, same, Unpickled())


@only("workpool", SHARED)
def case_result_that_cannot_be_pickled(pool):
    serialization_fails(pool, threading.Lock)
    serialization_fails(pool, make_unpicklable, ValueError)


@only("workpool", SHARED)
def case_result_that_cannot_be_unpickled(pool):
    serialization_fails(pool, make_unpickled, ValueError)


def task_error_stands_in(pool, name, *call):
    from workpool.errors import TaskError

    error = pool.submit(*call).exception(timeout=PATIENCE_S)
    assert isinstance(error, TaskError), repr(error)
    assert name in f"{error}{error.__cause__}", f"{error}{error.__cause__}"
    alive(pool)


@only("workpool", SHARED)
def case_exception_that_cannot_be_unpickled(pool):
    task_error_stands_in(pool, "Mined", fail_mined)


@only("workpool", SHARED)
def case_exception_that_cannot_be_pickled(pool):
    task_error_stands_in(pool, "Refused", fail_with, ValueError)


def case_exception_that_wants_more_than_its_args(pool):
    def task():
        raise Brittle(3, "brittle")

    error = pool.submit(task).exception(timeout=PATIENCE_S)
    assert type(error) is Brittle
    assert error.args == (3,)


@only("workpool", SHARED)
def case_exception_that_does_not_say_of_which_class_it_is(pool):
    class Nameless(Exception):
        @property
        def __class__(self):
            raise LookupError("of no class")

    def task():
        raise Nameless

    settles(pool, task)


def settles(pool, *call):
    """Assert that a future gets an exception of some kind, and that the workers live."""
    error = pool.submit(*call).exception(timeout=PATIENCE_S)
    assert isinstance(error, BaseException), repr(error)
    alive(pool)


@only("workpool", SHARED)
def case_exit_while_an_argument_is_pickled(pool):
    settles(pool, same, Unpicklable(SystemExit))


@only("workpool", SHARED)
def case_exit_while_an_argument_is_unpickled(pool):
    settles(pool, same, Unpickled(SystemExit))
    settles(pool, same, Unpickled(KeyboardInterrupt))


@only("workpool", SHARED)
def case_exit_while_a_result_is_pickled(pool):
    settles(pool, make_unpicklable, SystemExit)
    settles(pool, make_unpicklable, KeyboardInterrupt)


@only("workpool", SHARED)
def case_exit_while_an_exception_is_pickled(pool):
    settles(pool, fail_with, SystemExit)
    settles(pool, fail_with, KeyboardInterrupt)


@only("workpool", SHARED)
def case_exit_while_a_result_is_unpickled(pool):
    settles(pool, make_unpickled, SystemExit)


@only("workpool", SHARED)
def case_interrupt_while_a_result_is_unpickled(pool):
    """As if Ctrl-C came at that moment: it may go through, but nothing else may be lost."""
    futures = [pool.submit(make_unpickled, KeyboardInterrupt)]
    futures += [pool.submit(same, n) for n in range(100)]
    with contextlib.suppress(KeyboardInterrupt):
        futures[0].exception(timeout=PATIENCE_S)
    until(lambda: all(future.done() for future in futures), "every future to be done")
    assert [future.result() for future in futures[1:]] == list(range(100))
    case_callback_runs_though_nobody_waits(pool)
