"""What a child process does before it calls a task's function."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from children import Child, payload

from workpool.context import Limits
from workpool.serializer import Kind
from workpool.serializer.byvalue import dumps_by_value
from workpool.serializer.references import MAX_NBYTES
from workpool.worker import isolation


def leave() -> None:
    os._exit(3)


class Leaves:
    """What ends the process that restores it."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[()]]:
        return leave, ()


@pytest.mark.parametrize(
    ("initializer", "function", "args", "subject"),
    [
        (leave, abs, (-1,), "the initializer before task"),
        (None, partial(print, Leaves()), (), "the restoring of task"),
        (None, abs, (Leaves(),), "the restoring of task"),
        (None, os._exit, (3,), "task"),
    ],
)
def test_a_lost_task_says_what_its_process_was_at(
    initializer: Callable[[], None] | None,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    subject: str,
) -> None:
    found = Child(function, Limits(), initializer)
    lost = found.call(payload(*args))
    assert str(lost.error(abs)) == f"{subject} abs ended its process with exit code 3"
    found.runner.leave()


def test_preparations_for_a_task_have_a_limit_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Child(abs, Limits(timeout_s=1.0), partial(time.sleep, 600))
    process = found.runner._current(found.pool.limits)
    monkeypatch.setattr(isolation, "PREPARE_S", 1.5)
    lost = found.call(payload(-1))
    said = "the initializer before task abs had not ended after 1.5 s, its limit, and was killed"
    assert str(lost.error(abs)).startswith(said)
    assert process.ended()


def test_nothing_is_sent_ahead_of_code_that_a_child_has_dropped() -> None:
    """For that of a task which has failed: it would take the next request for what it asks for."""
    data = bytes(MAX_NBYTES * 2 // 3)  # it keeps one of two functions that read this
    found = Child(lambda n: n if data else None, Limits())
    found.pool.callables.add(2, dumps_by_value(lambda n: data[n]))
    assert found.call(payload(5)) == 5
    assert found.runner.call(found.pool, 0, 2, payload(len(data)))[0] == Kind.EXCEPTION
    tasks = [payload(n) for n in range(3)]
    found.send_ahead(tasks)
    assert [found.call(task) for task in tasks] == [0, 1, 2]
    found.runner.leave()
