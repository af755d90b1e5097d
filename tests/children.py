"""A child process as its worker sees it, for the tests of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workpool.context import Context, Limits, encode_setup
from workpool.loss import Loss
from workpool.serializer import Code, Kind, as_bytes, pack_call, unpack_outcome
from workpool.serializer.byvalue import dumps_by_value
from workpool.system.inherited import of_us
from workpool.system.process import ChildProcess
from workpool.worker import isolation, runner


class Child:
    """A child process and one function that it runs."""

    def __init__(
        self,
        function: Callable[..., Any],
        limits: Limits,
        initializer: Callable[[], object] | None = None,
    ) -> None:
        setup = encode_setup(of_us(None), initializer, ())
        self.runner = isolation.IsolatedRunner(runner.Runner(1, "here"))
        self.pool = self.runner.enter(1, Context(1, limits, setup).encoded())
        self.pool.callables.add(1, dumps_by_value(function))
        self.process: ChildProcess | None = None  # that runs it, where that is noted

    def send_ahead(self, payloads: list[bytes]) -> None:
        self.runner.send_ahead(self.pool, 0, 1, payloads)

    def call(self, payload: bytes | memoryview) -> Any:
        """Return what a task returns, or how it was lost."""
        kind, encoded = self.runner.call(self.pool, 0, 1, payload)
        if kind == Kind.LOST:
            assert isinstance(encoded, bytes)
            return Loss.decode(encoded)
        value, error = unpack_outcome(kind, as_bytes(encoded))
        assert error is None
        return value


def payload(*args: object) -> bytes:
    encoded = pack_call(print, args, {}, Code(1, b""))
    assert isinstance(encoded, bytes)
    return encoded
