"""Ends of pipes of `multiprocessing` are refused, wherever they are."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

from workpool.errors import SerializationError
from workpool.serializer import pack_call, pack_value

REMEDY = "an end of a pipe, which only this process has: take a queue of a multiprocessing.Manager"


@pytest.fixture
def end() -> Iterator[Connection]:
    end, other = multiprocessing.Pipe()
    with end, other:
        yield end


class Keeps:
    def __init__(self, end: Connection) -> None:
        self.end = end

    def run(self) -> None:
        self.end.send(1)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda end: (print, (1, end)), "argument 2 of 2"),
        (lambda end: (print, ([{"at": end}],)), "argument 1 of 1"),
        (lambda end: (Keeps(end).run, ()), "self.end, which comes along,"),
        (lambda end: (lambda: end.send(1), ()), "'end', which the function reads,"),
    ],
)
def test_a_task_gets_none(
    call: Callable[[Connection], tuple[Callable[..., Any], tuple[Any, ...]]],
    what: str,
    end: Connection,
) -> None:
    function, args = call(end)
    with pytest.raises(SerializationError, match=f"cannot pickle {what}.*: it is {REMEDY}"):
        pack_call(function, args, {})


def test_nor_does_it_return_one(end: Connection) -> None:
    with pytest.raises(SerializationError, match=REMEDY):
        pack_value([end], print)


def test_multiprocessing_itself_may_pass_it_on(end: Connection) -> None:
    with pytest.raises(SerializationError):
        pack_call(print, (end,), {})
    assert ForkingPickler.dumps(end)
