"""Messages between a rank and a child process: in pieces, as large as they are, to the very end."""

from __future__ import annotations

import socket

import pytest

from workpool.system.channel import Channel


def test_a_message_may_have_very_many_pieces() -> None:
    ours, theirs = socket.socketpair()
    channel, other = Channel(ours), Channel(theirs)
    pieces = [bytes([n % 256]) * (n % 7) for n in range(5000)]
    channel.send(pieces, pieces[:1000])
    for count in (5000, 1000):
        while not other.ready(0):
            channel.ready(0)
        assert other.receive() == b"".join(pieces[:count])
    channel.close()
    other.close()


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
        channel.send([message])
        channel.send([b"another"])
        assert not channel.ready(0.01)  # nobody reads
        while not other.ready(0):
            channel.ready(0)
        assert other.receive() == message
        assert other.receive() == b"another"
        channel.close()
        with pytest.raises(EOFError):
            other.ready(1)


def test_what_was_answered_before_the_end_is_received() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    channel.send([bytes(1 << 22)])  # more than is taken at once
    Channel(theirs).send([b"first"], [b"sec", b"ond"])
    theirs.close()
    for answer in (b"first", b"second"):
        assert channel.ready(1)
        assert channel.receive() == answer
    with pytest.raises((EOFError, OSError)):
        channel.ready(1)
    channel.close()


def test_what_was_answered_at_length_before_the_end_is_received_without_a_wait() -> None:
    ours, theirs = socket.socketpair()
    channel, other = Channel(ours), Channel(theirs)
    other.send([bytes(100_000)])  # some reads
    other.flush()
    other.close()
    assert channel.ready(0)
    assert len(channel.receive()) == 100_000
    channel.close()


def test_a_connection_is_closed_although_a_forked_process_has_this_end_of_it() -> None:
    ours, theirs = socket.socketpair()
    copy, other = ours.dup(), Channel(theirs)
    Channel(ours).close()
    with pytest.raises(EOFError):
        other.ready(10)
    copy.close()
    other.close()
