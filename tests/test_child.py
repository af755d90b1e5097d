"""What a rank and a child process have between them: messages in pieces, contexts of pools."""

from __future__ import annotations

import socket

import pytest

from workpool import isolation, runner
from workpool.channel import Channel
from workpool.serializer import pack
from workpool.tasks import Context, Limits, Setup


def test_what_comes_in_pieces_is_waited_for_in_pieces() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        channel = Channel(ours)
        for piece in (b"\x05\0\0", b"\0\0\0\0\0he", b"ll"):
            theirs.sendall(piece)
            assert not channel.ready(0.01)
        theirs.sendall(b"o")
        assert channel.ready(0)
        assert channel.receive() == b"hello"
        assert not channel.ready(0)
        other = Channel(theirs)
        message = bytes(range(256)) * (1 << 14)
        channel.send(message)
        channel.send(b"another")
        assert not channel.ready(0.01)  # nobody reads
        while not other.ready(0):
            channel.ready(0)
        assert other.receive() == message
        assert other.receive() == b"another"
        channel.close()
        with pytest.raises(EOFError):
            other.ready(1)


def test_pools_of_long_ago_are_forgotten() -> None:
    own = runner.Runner(1, "here")
    isolated = isolation.IsolatedRunner(own, 1, "here")
    setup = pack(Setup([], None, ()))
    assert isinstance(setup, bytes)
    fetched: list[int] = []

    def content(number: int, limits: Limits | None) -> bytes:
        fetched.append(number)
        return Context(number, limits, setup).encoded()

    for either, limits, most in (
        (own, None, runner.POOLS),
        (isolated, Limits(), isolation.CONTEXTS),
    ):
        fetched.clear()
        for number in range(most + 1):
            for each in (0, number):  # the first one is in use all the time
                either.enter(each, lambda each=each, limits=limits: content(each, limits))
        assert fetched == list(range(most + 1))
        either.enter(1, lambda limits=limits: content(1, limits))
        assert fetched == [*range(most + 1), 1]
