"""Serve TCP clients from an event loop while the pool computes: the loop never stands still.

    workpool run -w 4 demos/serve.py
    mpiexec -n 5 python -m workpool demos/serve.py --clients 20 --requests 60
    python demos/serve.py

Everything here is one asyncio program on rank 0. A server on localhost answers each number that a
client sends by its prime factors: it has a worker find them and awaits that with run_in_executor,
for WorkPool is an Executor like any other. Meanwhile the program counts all primes below a limit,
in slices. It awaits their futures with asyncio.wrap_future, and keeps only a few of them under way,
so that no request stands in line behind all the others.

A ticker sleeps for 5 ms again and again. When it wakes late, the loop was held up for so long; the
longest of these pauses must stay below a bound. The check multiplies the factors, tests each of
them for primality in another way, and counts the primes with one plain sieve.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from workpool import WorkPool

TICK_S = 5e-3
SLICE = 500_000


class Reply(NamedTuple):
    """What a client was told, and how long it waited."""

    number: int
    factors: list[int]
    wait_s: float


# The tasks. They run on the workers.


def factors(number: int) -> list[int]:
    """Return the prime factors of a number, the smallest first, by trial division."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        if number % divisor:
            divisor += 1 + divisor % 2  # 2, 3, 5, 7, 9 ...
        else:
            found.append(divisor)
            number //= divisor
    return [*found, number]


def primes(first: int, last: int) -> int:
    """Return how many primes there are from `first`, which is 2 at least, to before `last`."""
    is_prime = np.ones(last - first, bool)
    for divisor in (2, *range(3, math.isqrt(last) + 1, 2)):
        multiple = max(divisor * divisor, -(-first // divisor) * divisor)
        is_prime[multiple - first :: divisor] = False
    return int(np.count_nonzero(is_prime))


# What runs on the event loop of rank 0.


async def answer(
    pool: WorkPool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer a client's numbers by their factors, until it hangs up."""
    loop = asyncio.get_running_loop()
    try:
        while line := await reader.readline():
            found = await loop.run_in_executor(pool, factors, int(line))
            writer.write(f"{' '.join(map(str, found))}\n".encode())
    finally:
        writer.close()


async def ask(port: int, numbers: Sequence[int]) -> list[Reply]:
    """Be a client: ask for one number after another."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    replies = []
    for number in numbers:
        begun = time.perf_counter()
        writer.write(f"{number}\n".encode())
        line = await reader.readline()
        replies.append(Reply(number, [*map(int, line.split())], time.perf_counter() - begun))
    writer.close()
    return replies


async def count(pool: WorkPool, limit: int) -> int:
    """Count the primes below a limit, with few tasks under way at any time."""
    slices = iter([(first, min(first + SLICE, limit)) for first in range(2, limit, SLICE)])

    async def feed() -> int:
        return sum([await asyncio.wrap_future(pool.submit(primes, *each)) for each in slices])

    return sum(await asyncio.gather(*(feed() for _ in range(pool.num_workers + 1))))


async def tick(pauses_s: list[float]) -> None:
    """Note for how long the loop did not come back to this, until cancelled."""
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(TICK_S)
        pauses_s.append(time.perf_counter() - begun - TICK_S)


async def program(
    pool: WorkPool, limit: int, numbers: Sequence[Sequence[int]]
) -> tuple[int, list[Reply], list[float]]:
    """Do all of it at once; return the primes counted, the replies, and the pauses of the loop."""
    pauses_s: list[float] = []
    ticker = asyncio.create_task(tick(pauses_s))
    server = await asyncio.start_server(partial(answer, pool), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        clients = asyncio.gather(*(ask(port, each) for each in numbers))
        counted, talks = await asyncio.gather(count(pool, limit), clients)
        await asyncio.sleep(2 * TICK_S)  # the last pause is noted, too
    ticker.cancel()
    return counted, [reply for talk in talks for reply in talk], pauses_s


# Start, report and check.


def main(words: Sequence[str] | None = None) -> int:
    """Run the program, check what it found, and return the exit status."""
    options = arguments(words)
    chosen = random.Random(1)
    numbers = [
        [chosen.randrange(10**11, 10**12) for _ in range(options.requests)]
        for _ in range(options.clients)
    ]
    with WorkPool() as pool:
        begun = time.perf_counter()
        counted, replies, pauses_s = asyncio.run(program(pool, options.limit, numbers))
        wall_s = time.perf_counter() - begun
        workers = pool.num_workers
    if options.sabotage:
        replies[0].factors[0] += 1

    print(f"{wall_s:.2f} s with {workers} workers: {counted:,} primes below {options.limit:,}")
    print(f"\n{'':>28}{'times':>8}{'median ms':>12}{'99% ms':>10}{'longest ms':>12}")
    row("a client waited", [reply.wait_s for reply in replies])
    row("the loop paused", pauses_s)
    print()

    asked = sorted(number for each in numbers for number in each)
    right = sum(is_answer(reply) for reply in replies)
    longest_ms = max(pauses_s) * 1e3
    claims = {
        f"every request answered, {right:,} of {len(asked):,} rightly": right == len(asked)
        and sorted(reply.number for reply in replies) == asked,
        "one sieve counts as many primes": plain_sieve(options.limit) == counted,
        f"no pause longer than {options.bound:g} ms": longest_ms <= options.bound,
    }
    for claim, holds in claims.items():
        print(f"check: {claim}: {'yes' if holds else 'WRONG'}")
    return 0 if all(claims.values()) else 1


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; leave with status 2 if it makes no sense."""
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS,  # the docstring has it
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--clients", type=int, default=8, help="at the same time")
    parser.add_argument("--requests", type=int, default=100, help="of each client")
    parser.add_argument("--limit", type=int, default=100_000_000, help="of the primes counted")
    parser.add_argument("--bound", type=float, default=500, help="of the loop's pauses, in ms")
    parser.add_argument("--sabotage", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if min(options.clients, options.requests) < 1:
        parser.error(
            f"--clients {options.clients} --requests {options.requests}: both are 1 at least"
        )
    if options.limit < 3 or not options.bound > 0:
        parser.error(
            f"--limit {options.limit} --bound {options.bound:g}: 3 at least, and more than 0"
        )
    return options


def row(what: str, times_s: Sequence[float]) -> None:
    """Print a line of the table."""
    median, most, longest = np.percentile(times_s, [50, 99, 100]) * 1e3
    print(f"{what:>28}{len(times_s):>8,}{median:>12.2f}{most:>10.2f}{longest:>12.2f}")


def is_answer(reply: Reply) -> bool:
    """Return whether a reply has the prime factors of its number."""
    return math.prod(reply.factors) == reply.number and all(map(is_prime, reply.factors))


def is_prime(number: int) -> bool:
    """Return whether a number is prime, by Miller and Rabin: certain below 2 * 10**12."""
    odd, twos = number - 1, 0
    while odd and odd % 2 == 0:
        odd, twos = odd // 2, twos + 1

    def passes(base: int) -> bool:
        powers = [pow(base, odd << i, number) for i in range(twos or 1)]
        return powers[:1] == [1] or number - 1 in powers

    return number > 1 and all(number == base or passes(base) for base in (2, 3, 5, 7, 11))


def plain_sieve(limit: int) -> int:
    """Return how many primes there are below a limit."""
    sieve = np.ones(limit, bool)
    sieve[:2] = False
    for number in range(2, math.isqrt(limit) + 1):
        if sieve[number]:
            sieve[number * number :: number] = False
    return int(np.count_nonzero(sieve))


if __name__ == "__main__":
    sys.exit(main())
