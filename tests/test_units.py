"""Small parts of driver and job by themselves: threads, what is kept."""

from __future__ import annotations

import errno
import math
import os
import queue
import re
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import wait
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import workpool
from workpool.accumulator import Accumulators
from workpool.backoff import FIRST_S, SPINS, Backoff
from workpool.caches import MOST_CLASSES, LruCache, WeakLruCache, once_for_each_class
from workpool.clock import Stopwatch
from workpool.context import Context, TaskKind, encode_setup
from workpool.errors import RemoteTraceback, SerializationError, TaskLost
from workpool.flag import Flag
from workpool.job.drain import Drain
from workpool.journal.ledger import Ledgers
from workpool.loss import Loss, Why
from workpool.pool.elsewhere import _HERE, Elsewhere
from workpool.pool.future import PoolFuture
from workpool.pool.options import Changes, TaskOptions, usual_arena_nbytes
from workpool.pool.resolver import Resolver
from workpool.reduction import OPERATIONS
from workpool.serializer import Kind, join, pack_exception
from workpool.system import status
from workpool.system.inherited import of_us
from workpool.system.status import Watch
from workpool.tasks import Finished, PoolContext, Tally, Task


def test_of_a_pause_a_stopwatch_counts_the_most_that_a_look_takes() -> None:
    now_s = 5.0
    watch = Stopwatch(2.0, lambda: now_s)
    seen = []
    for now_s in (5.0, 6.5, 8.5, 7200.0, 7200.5):  # noqa: B007  # the clock reads it
        seen.append(watch.look())
    assert seen == [0.0, 1.5, 3.5, 5.5, 6.0]


def test_pauses_grow_and_none_is_longer_than_what_is_left() -> None:
    slept: list[float] = []
    wait = Backoff(1.0, sleep=slept.append)
    for _ in range(SPINS + 20):
        assert not wait.pause(5e-3)
    assert slept == pytest.approx([min(FIRST_S * 2**n, 5e-3) for n in range(20)])
    assert not wait.pause()
    assert slept[-1] == 1.0
    wait.reset()
    assert wait.spins == SPINS


def test_what_drains_a_job_waits_in_a_queue_as_it_is_when_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with locks: the thread of a queue from before would be the only one that runs."""
    told = threading.Event()

    class Replaced(queue.SimpleQueue[bool]):
        def get(self, block: bool = True, timeout: float | None = None) -> bool:
            found = super().get(block, timeout)
            told.set()
            return found

    drain = Drain(list, lambda drain_s: None, lambda status: None)
    monkeypatch.setattr(queue, "SimpleQueue", Replaced)
    drain.open(1.0)
    drain.close()
    assert told.wait(10)


def test_two_threads_that_wait_for_what_is_lost_are_both_told() -> None:
    """Also the one that comes while the other is about to end the future."""

    def wait(*_: object) -> bool:
        raise TaskLost

    pool: Any = SimpleNamespace(driver=SimpleNamespace(wait=wait), lose=lambda *_: None)
    with pytest.raises(TaskLost):
        PoolFuture[int](pool).result()


def test_a_future_that_has_ended_is_not_watched() -> None:
    pool: Any = SimpleNamespace(lock=threading.RLock(), watched=set(), watch=bool)
    future = PoolFuture[int](pool)
    future.resolve(1, None)
    assert wait([future], 0).done == {future}
    assert not pool.watched


def test_a_future_that_ends_while_it_is_shown_is_shown_as_it_is_then() -> None:
    def ends(task: object) -> bool:
        future.resolve(1, None)
        return False

    pool: Any = SimpleNamespace(lock=threading.RLock(), driver=SimpleNamespace(running=ends))
    future = PoolFuture[int](pool)
    future._task = object()  # type: ignore[assignment]
    assert repr(future).endswith(" state=finished returned int>")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="every instance has a dict before 3.11")
def test_futures_have_no_dict_each(run_script: Callable[..., object]) -> None:
    """However many are made before one ends: the garbage collector would look at each."""
    run_script(
        """
        import threading
        from gc import get_referents
        from types import SimpleNamespace
        from workpool.pool.future import PoolFuture

        pool = SimpleNamespace(lock=threading.RLock())
        futures = [PoolFuture(pool) for _ in range(100)]
        for future in futures:
            future.resolve(1, None)
        assert not any(type(it) is dict for future in futures for it in get_referents(future))
        """
    )


@pytest.mark.parametrize(
    ("size", "one_host", "free_mib", "addresses_mib", "arena_mib"),
    [
        (2, True, 1 << 20, None, 1024),
        (3, False, 1 << 20, None, 256),  # MPI may pin it
        (1, True, 1 << 20, None, 256),  # memory of this process, of which the system may count all
        (3, True, None, None, 1024),
        (3, True, 8192, None, 1024),
        (3, True, 8191, None, 256),
        (3, True, 200, None, 100),
        (3, True, 1 << 20, 4096, 512),
        (3, True, 1, 4096, 1),
    ],
)
def test_the_arena_that_nobody_asks_for(
    size: int,
    one_host: bool,
    free_mib: int | None,
    addresses_mib: int | None,
    arena_mib: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = None if free_mib is None else free_mib << 20
    group: Any = SimpleNamespace(size=size, one_host=one_host, room=lambda: room)
    limit = resource.RLIM_INFINITY if addresses_mib is None else addresses_mib << 20
    limits = {resource.RLIMIT_AS: (limit, resource.RLIM_INFINITY)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    assert usual_arena_nbytes(group) == arena_mib << 20


def test_a_type_checker_knows_the_options_that_there_are() -> None:
    assert tuple(Changes.__annotations__) == TaskOptions._fields


def test_a_number_among_the_options_becomes_such() -> None:
    options = TaskOptions().changed(retries=Decimal(2), retry_delay_s=Decimal("0.5"))
    assert options.retry is not None
    assert [type(number) for number in options.retry[:2]] == [int, float]


def test_a_flag_ends_the_wait_of_another_thread_and_stays_set() -> None:
    flag, seen = Flag(), []
    thread = threading.Thread(target=lambda: (flag.wait(10), seen.append(flag.is_set())))
    thread.start()
    flag.set()
    thread.join(10)
    flag.set()
    assert (seen, flag.is_set()) == ([True], True)
    flag.clear()
    flag.wait(1e-3)
    assert not flag.is_set()


def test_a_driver_that_was_killed_falls_silent(tmp_path: Path) -> None:
    with Watch(str(tmp_path)) as watch, socket.socket(socket.AF_UNIX) as driver:
        driver.connect(str(tmp_path / "driver"))
        driver.sendall(b"123\n")
        watch.look(1)
        watch.look(1)
        assert watch.driver == 123
        driver.close()  # with what it was sent unread
        watch.look(1)
        assert watch.silent


def test_a_driver_that_cannot_have_the_launchers_streams_does_not_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))

    monkeypatch.setattr(status.socket, "send_fds", refuse)
    with Watch(str(tmp_path)) as watch, socket.socket(socket.AF_UNIX) as driver:
        driver.connect(str(tmp_path / "driver"))
        driver.sendall(b"123\n")
        watch.look(1)
        watch.look(1)
        assert socket.recv_fds(driver, 1, 3, socket.MSG_DONTWAIT)[:2] == (b".", [])
    assert "cannot have these standard streams (Too many references" in capsys.readouterr().err


def test_attempts_that_were_lost_with_a_worker_are_told_of_one_that_fails() -> None:
    def nothing(*_: object) -> None:
        pass

    errors: list[BaseException] = []
    future = SimpleNamespace(resolve=lambda value, error: errors.append(error))
    context = PoolContext(1, Context(1, None, b""), nothing, nothing, Tally())
    task = Task(1, TaskKind.CALL, divmod, context, b"", future)
    task.attempt = 1
    raised = pack_exception(ZeroDivisionError(), task=divmod, rank=1, host="here")
    resolver = Resolver(
        None,  # type: ignore[arg-type]
        Accumulators(),
        Ledgers((None, ()), nothing, nothing),
        threading.RLock(),
        1,
        nothing,
        nothing,
    )
    resolver.resolve(Finished(context, 1, [(task, Kind.EXCEPTION, raised)]))
    (error,) = errors
    assert isinstance(error.__cause__, RemoteTraceback)
    assert error.__cause__.attempts == 2


def test_a_signal_may_have_no_name() -> None:
    signum = signal.SIGRTMIN + 6
    crash = Loss(Why.CRASHED, 1, "here", 1, returncode=-signum).error(abs)
    assert f"signal {signum} (no standard one)" in str(crash)


def test_a_reason_that_nobody_knows_is_none() -> None:
    with pytest.raises(SerializationError, match="not what is said of a lost attempt"):
        Loss.decode(join(("moved house", *Loss(Why.CRASHED)[1:])))


def test_what_an_initializer_cannot_be_given_is_told_of_the_initializer() -> None:
    with pytest.raises(SerializationError, match=r"argument 1 of 1 .* initializer print:") as it:
        encode_setup(of_us(None), print, ((n for n in "x"),))
    assert "build it in the initializer" in str(it.value)


def test_recent_keeps_what_is_used() -> None:
    recent: LruCache[str] = LruCache(3, 100)
    for key in range(3):
        recent.keep(key, str(key), 10)
    assert recent.use(0) == "0"
    recent.keep(3, "3", 10)
    assert list(recent) == [2, 0, 3]
    assert recent.use(1) is None
    recent.keep(2, "larger than all room", 101)  # and no reason to drop the others
    assert (list(recent), recent.nbytes) == ([0, 3], 20)
    recent.keep(4, "4", 90)
    assert (list(recent), recent.nbytes) == ([3, 4], 100)
    recent.drop_if(lambda entry: entry == "4")
    assert (list(recent), recent.nbytes, recent.use(4)) == ([3], 10, None)
    recent.clear()
    assert (list(recent), recent.nbytes) == ([], 0)
    recent.keep(3, "3", 100)  # as if it had never been there
    assert (list(recent), recent.nbytes) == ([3], 100)


@pytest.mark.parametrize("key", [0, 1])
def test_threads_may_keep_the_same_in_recent_at_once(key: int) -> None:
    class Interrupted(LruCache[str]):
        def __setitem__(self, given: int, entry: str) -> None:
            super().__setitem__(given, entry)
            if entry == "first":
                self.keep(key, "by another thread")

    recent = Interrupted(1)
    recent.keep(0, "first")
    assert (list(recent), recent.nbytes) == ([key], 0)


def test_what_is_known_of_an_object_is_not_of_another_with_its_id() -> None:
    class Thing:
        pass

    known: WeakLruCache[str] = WeakLruCache(2)
    thing, another = Thing(), Thing()
    assert known.get(thing) is None
    assert known.keep(thing, "first")
    assert known.keep(thing, "second")
    assert (known.get(thing), known.get(another)) == ("second", None)
    known._entries.keep(id(another), known._entries[id(thing)])  # as if it had that place now
    assert known.get(another) is None
    assert not known.keep(5, "no weak references")
    assert known.get(5) is None


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("kind", [float, np.float64])
def test_nan_passes_through_minima_and_maxima(op: str, kind: type[float]) -> None:
    function = OPERATIONS[op].function
    for one, other in permutations((kind(1), kind("nan"))):
        assert math.isnan(function(one, other))


def test_answers_are_remembered_of_so_many_classes() -> None:
    asked: list[type] = []
    answer = once_for_each_class(lambda cls: (asked.append(cls), cls.__name__)[1])
    classes = [type(f"C{n}", (), {}) for n in range(MOST_CLASSES + 1)]
    assert [answer(cls) for cls in (*classes[:1] * 3, *classes)][-1] == f"C{MOST_CLASSES}"
    assert asked == classes
    assert answer(classes[0]) == "C0"
    assert asked == [*classes, classes[0]]


def test_who_comes_from_another_pool_is_told_what_to_write() -> None:
    pool = Elsewhere()
    with pytest.raises(AttributeError, match="attribute 'imap'; here it is map"):
        pool.imap  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'colour'$") as found:
        pool.colour  # type: ignore[attr-defined]  # noqa: B018
    assert (found.value.name, found.value.obj) == ("colour", pool)  # for "Did you mean"
    for what in re.findall(r"\w+(?=\()", " ".join(_HERE.values())):
        assert what in ("list", "result") or callable(getattr(workpool.WorkPool, what))


def test_what_the_public_errors_are() -> None:
    for name in workpool.__all__:
        assert getattr(workpool, name).__name__ == name
