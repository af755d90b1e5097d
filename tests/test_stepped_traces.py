"""What a task leaves behind is nothing to the next one, and nothing counts of what is cut short."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import repeat

from scripted import define
from stepped import Stepped, outcomes
from stepped_pool import Make, drained

from workpool.errors import SerializationError

starts: list[None] = []
broken: list[None] = []
go_on, changed = threading.Event(), threading.Event()

SCRIPT = """
import threading
seen = {"times": 0}
def change():
    here.go_on.wait(10)
    seen["times"] += 1
    here.changed.set()
def times():
    if here.starts:
        here.starts.pop()
        threading.Thread(target=change).start()
    return seen["times"]
class Brittle:
    def __setstate__(self, state):
        if here.broken:
            raise OSError("gone")
        vars(self).update(state)
brittle = Brittle()
brittle.uses = 0
def add(item, numbers):
    brittle.uses += 1
    numbers.add(1)
    if item == 30:
        here.broken.append(None)
    return item
"""


def test_what_a_thread_of_a_task_changes_afterwards_is_not_seen(
    make_job: Callable[..., Stepped],
) -> None:
    """A function is checked while its worker waits for the next task, but then that is too soon."""
    job, made = make_job(), define(SCRIPT, here=sys.modules[__name__])
    job.worker.runners.threads = threading.active_count()
    code, tasks = job.code(made.times), []
    for start in (0, 1, 0):
        starts.extend([None] * start)
        tasks.append(job.submit(made.times, code=code))
        job.go()
        if start:
            assert not starts
            go_on.set()
            assert changed.wait(10)
    assert outcomes(tasks) == [0, 0, 0]


def test_what_a_turn_has_added_does_not_count_without_its_report(make: Make) -> None:
    """A function that left a trace is restored anew before each chunk, and then it cannot be."""
    broken.clear()
    pool, made = make(workers=1), define(SCRIPT, here=sys.modules[__name__])
    numbers = pool.accumulator((), "int64")
    results = pool.map(made.add, range(100), repeat(numbers), schedule="self")
    found, _ = drained(results, SerializationError)
    assert found == list(range(len(found)))
    assert broken
    assert 0 < numbers.value() == len(found) <= 30
