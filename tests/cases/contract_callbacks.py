"""Callbacks, cancelling, and futures that an event loop awaits."""

from __future__ import annotations

import asyncio
import operator
import random
import threading
from concurrent.futures import CancelledError, Future, wait
from typing import Any

from runner import PATIENCE_S, hold, needs, raises, until

from __main__ import Refused, alive, fail, fail_at, inverse, same, touch

# Callbacks.


def case_callbacks_run_in_their_order_with_the_future(pool, gate):
    calls: list[tuple[int, Any]] = []
    future = pool.submit(hold, gate.place)
    for n in range(5):
        future.add_done_callback(lambda given, n=n: calls.append((n, given)))
    gate.open()
    future.result()
    until(lambda: len(calls) == 5, "five callbacks")
    assert calls == [(n, future) for n in range(5)]


def case_callback_runs_though_nobody_waits(pool):
    called = threading.Event()
    pool.submit(same, 1).add_done_callback(lambda future: called.set())
    assert called.wait(PATIENCE_S)


def case_callback_added_later_runs_at_once(pool):
    future = pool.submit(same, 1)
    future.result()
    calls: list[Any] = []
    future.add_done_callback(calls.append)
    assert calls == [future]


def case_callback_that_raises_hurts_nobody(pool, gate):
    calls: list[Any] = []
    future = pool.submit(hold, gate.place, value=3)
    future.add_done_callback(lambda given: fail(ValueError("on purpose")))
    future.add_done_callback(calls.append)
    gate.open()
    assert future.result() == 3
    until(lambda: calls == [future], "the second callback")
    future.add_done_callback(lambda given: fail(ValueError("on purpose")))
    alive(pool)


def case_callback_of_a_failure(pool):
    calls: list[Any] = []
    future = pool.submit(inverse, 0)
    future.add_done_callback(lambda given: calls.append(type(given.exception())))
    until(lambda: calls == [ZeroDivisionError], "the callback")


def case_callback_of_a_cancelled_future(pool, gate, workers):
    held = [pool.submit(hold, gate.place, n) for n in range(workers)]
    gate.wait_for(workers)
    calls: list[Any] = []
    future = pool.submit(same, 1)
    future.add_done_callback(calls.append)
    assert future.cancel()
    assert calls == [future]
    gate.open()
    wait(held)


def case_callback_may_submit(pool):
    later: list[Future[int]] = []
    future = pool.submit(same, 1)
    future.add_done_callback(lambda given: later.append(pool.submit(same, given.result() + 1)))
    until(lambda: later, "the callback")
    assert later[0].result() == 2


def case_callbacks_may_form_a_chain(pool):
    ended = threading.Event()

    def more(future):
        if future.result() == 50:
            ended.set()
        else:
            pool.submit(operator.add, future.result(), 1).add_done_callback(more)

    pool.submit(same, 0).add_done_callback(more)
    assert ended.wait(PATIENCE_S)


@needs(2)
def case_callback_may_wait_for_another_task(pool):
    given: list[int] = []
    future = pool.submit(same, 1)
    future.add_done_callback(lambda done: given.append(pool.submit(same, 5).result(PATIENCE_S)))
    until(lambda: given == [5], "the callback")


def case_callback_may_shut_the_pool_down(make):
    pool = make()
    ended = threading.Event()

    def end(future):
        pool.shutdown(wait=False)
        ended.set()

    futures = [pool.submit(same, n) for n in range(20)]
    futures[0].add_done_callback(end)
    assert ended.wait(PATIENCE_S)
    assert [future.result(PATIENCE_S) for future in futures] == list(range(20))
    with raises(RuntimeError):
        pool.submit(same, 1)


# Cancelling.


def case_queued_tasks_can_be_cancelled_and_running_ones_not(pool, gate, tmp, workers):
    held = [pool.submit(hold, gate.place, n) for n in range(workers)]
    gate.wait_for(workers)
    for future in held:
        until(future.running, "running()")
    queued = [pool.submit(touch, str(tmp), f"ran-{n}") for n in range(20)]
    assert [future.cancel() for future in held] == workers * [False]
    assert [future.cancel() for future in queued] == 20 * [True]
    assert all(future.cancelled() and future.done() for future in queued)
    assert all(future.cancel() for future in queued), "cancelling again says True again"
    for future in queued:
        with raises(CancelledError):
            future.result(0)
        with raises(CancelledError):
            future.exception(0)
    gate.open()
    wait(held)
    assert not any(future.cancel() for future in held), "what is done cannot be cancelled"
    alive(pool)
    assert not list(tmp.glob("ran-*")), "a cancelled task has run"


def case_every_second_of_a_queue_cancelled(pool, gate, workers):
    held = [pool.submit(hold, gate.place, n) for n in range(workers)]
    gate.wait_for(workers)
    queued = [pool.submit(same, n) for n in range(100)]
    assert all(future.cancel() for future in queued[::2])
    gate.open()
    assert [future.result() for future in queued[1::2]] == list(range(1, 100, 2))
    wait(held)


def case_cancelling_in_a_race_loses_nothing(pool, tmp):
    numbers = random.Random(7)
    for _ in range(5):
        futures = [pool.submit(touch, str(tmp), n) for n in range(100)]
        cancelled = {n for n in numbers.sample(range(100), 50) if futures[n].cancel()}
        wait(futures)
        for n, future in enumerate(futures):
            assert future.cancelled() == (n in cancelled)
            assert future.cancelled() or future.result() == n
        alive(pool)
        assert {int(path.name) for path in tmp.glob("[0-9]*")} == set(range(100)) - cancelled
        for path in tmp.glob("[0-9]*"):
            path.unlink()


# asyncio.


def case_asyncio_wrap_future(pool):
    async def go():
        assert await asyncio.wrap_future(pool.submit(pow, 2, 5)) == 32
        with raises(ZeroDivisionError):
            await asyncio.wrap_future(pool.submit(inverse, 0))

    asyncio.run(go())


def case_asyncio_run_in_executor(pool):
    async def go():
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(pool, pow, 2, 6) == 64
        with raises(Refused):
            await loop.run_in_executor(pool, fail_at, 1, 1)

    asyncio.run(go())


def case_asyncio_gather_of_200(pool):
    async def go():
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(pool, same, n) for n in range(200)))

    assert asyncio.run(go()) == list(range(200))


def case_asyncio_loop_goes_on_while_a_task_runs(pool, gate):
    async def go():
        held = asyncio.wrap_future(pool.submit(hold, gate.place, value=1))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not held.done()
        gate.open()
        return await asyncio.wait_for(held, PATIENCE_S)

    assert asyncio.run(go()) == 1


def case_asyncio_cancel_reaches_a_queued_task(pool, gate, workers):
    held = [pool.submit(hold, gate.place, n) for n in range(workers)]
    gate.wait_for(workers)

    async def go():
        future = pool.submit(same, 1)
        waiting = asyncio.wrap_future(future)
        waiting.cancel()
        with raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0)  # the cancel goes on to the pool's future by a callback of the loop
        assert future.cancelled()

    asyncio.run(go())
    gate.open()
    wait(held)


def case_asyncio_wait_for_with_timeout(pool, gate):
    async def go():
        with raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(pool.submit(hold, gate.place)), 0.05)

    asyncio.run(go())
    gate.open()
    alive(pool)
