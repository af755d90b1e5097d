"""The bottom layers by themselves: layout, protocol, arena."""

from __future__ import annotations

import random
from array import array
from itertools import product

import pytest
from steps import after

from workpool import layout, protocol
from workpool.errors import LayoutError, ProtocolError, UsageError
from workpool.extents import Extent, Region
from workpool.layout import NO_BLOB, Blob, Descriptor, Geometry, Items, Piece
from workpool.protocol import TRANSITIONS, State, Step

# --- layout -------------------------------------------------------------------------------------

EXTREMES = [
    (0, 0, 0, 0),
    (8, 1, 1, 1),
    (15, layout.MAX_MEMBERS, layout.MAX_ATTEMPT, layout.MAX_GENERATION),
]


@pytest.mark.parametrize(("state", "owner", "attempt", "generation"), EXTREMES)
def test_word_round_trip(state: int, owner: int, attempt: int, generation: int) -> None:
    word = layout.pack_word(state, owner, attempt, generation)
    assert 0 <= word < 2**63, "a control word is never negative: NEVER must not be stored"
    assert layout.state_of(word) == state
    assert layout.owner_of(word) == owner
    assert layout.attempt_of(word) == attempt
    assert layout.generation_of(word) == generation
    other = layout.pack_word((state + 1) % 16, owner, attempt, generation)
    assert layout.States([state]).rows(array("q", [other, word, other, word])) == [1, 3]
    assert layout.States(range(16)).rows(array("q", [word, other])) == [0, 1]
    changed = layout.rewrite_word(word, 3, 7)
    assert changed == layout.pack_word(3, 7, attempt, generation)


@pytest.mark.parametrize("rows", [1, 2, 7, 1024])
def test_rows_behind_a_turn_of_the_table(rows: int) -> None:
    rng = random.Random(rows)
    for generation in (1, 15, 16, 2**24 - 1, layout.MAX_GENERATION - 1):
        turn = rng.randrange(rows)
        latest = [generation + (row < turn) for row in range(rows)]
        for share in (0, 0.1, 1):  # of the rows, how many lie behind
            back = [rng.randint(1, 15) if rng.random() < share else 0 for _ in range(rows)]
            words = array("q")
            for now, by in zip(latest, back, strict=True):
                state, owner, attempt = rng.choice([1, 5]), rng.randrange(2**19), rng.randrange(16)
                words.append(layout.pack_word(state, owner, attempt, max(0, now - by)))
            assert layout.States([1, 9]).rows_behind(words, turn, generation) == [
                row
                for row, word in enumerate(words)
                if layout.state_of(word) == 1 and layout.generation_of(word) < latest[row]
            ]


def test_outcomes_of_a_batch_round_trip() -> None:
    outcomes = [(1, 5, b"x"), (2, 0, b""), (3, 10**18, b"12345678"), (4, 7, b"")]
    content = b"".join(layout.write_task_outcome(*outcome) for outcome in outcomes)
    for count in (None, *range(len(outcomes) + 1)):
        found = layout.read_task_outcomes(memoryview(content), count)
        assert [(kind, ns, bytes(encoded)) for kind, ns, encoded in found] == outcomes[:count]
    for cut in range(1, len(content)):
        with pytest.raises(LayoutError):
            layout.read_task_outcomes(memoryview(content)[:-cut], len(outcomes))
    with pytest.raises(LayoutError):
        layout.read_task_outcomes(memoryview(content), len(outcomes) + 1)
    for cut, count in product(range(1, 9), (1, None)):  # which all are of the last one's encoding
        with pytest.raises(LayoutError, match=f"reaches {cut} bytes too far"):
            layout.read_task_outcomes(layout.write_task_outcome(*outcomes[2])[:-cut], count)


def test_records_round_trip() -> None:
    blob, items = Blob(2**63, layout.STREAMED, 2**63), Items(3, 2**40, 7)
    descriptor = Descriptor(2**63, 1, *blob, *NO_BLOB, *Extent(2**62, 5), 99, *items)
    inline = bytes(n % 251 for n in range(layout.INLINE_PAYLOAD_NBYTES))
    record = layout.write_descriptor(descriptor, inline)
    assert len(record) == layout.DESCRIPTOR_NBYTES
    found, rest = layout.read_descriptor(memoryview(record))
    assert (found, bytes(rest)) == (descriptor, inline)
    assert (found.code, found.context, found.items) == (blob, NO_BLOB, items)
    assert found.payload == Extent(2**62, 5)
    outcome = 2, 10**18, layout.INLINE, layout.INLINE_OUTCOME_NBYTES
    inline = bytes(n % 251 for n in range(layout.INLINE_OUTCOME_NBYTES))
    record = layout.write_outcome(*outcome, inline)
    assert len(record) == layout.PLACE_AT
    record += layout.write_extent(Extent(2**62, 2**40))
    assert len(record) == layout.OUTCOME_NBYTES
    assert layout.read_place(memoryview(record)) == Extent(2**62, 2**40)
    assert layout.read_outcome(memoryview(record)) == outcome
    assert bytes(layout.inline_outcome(memoryview(record), len(inline))) == inline
    piece = Piece(3, 2**40, 2**41, Extent(-1, 7))
    assert layout.read_piece(memoryview(layout.write_piece(piece))) == piece


@pytest.mark.parametrize("rows", [1, 7, 1024, layout.MAX_ROWS])
@pytest.mark.parametrize("members", [2, 3, 100])
def test_nothing_overlaps_in_a_geometry(rows: int, members: int) -> None:
    geometry = Geometry(rows, members, 2 * members * layout.PAGE_NBYTES + 12345)
    last = rows - 1
    stretches = [
        (0, layout.IDENTITY_NBYTES),
        *[(w, 8) for w in (layout.HEAD, layout.TAIL, layout.TICKET)],
        (geometry.word(0), 8 * rows),
        (geometry.counter(0), 8 * rows),
        (geometry.beat(0), 8 * members),
        (geometry.descriptor(0), layout.DESCRIPTOR_NBYTES * rows),
        (geometry.outcome(0), layout.OUTCOME_NBYTES * rows),
        *[geometry.region(member) for member in range(members)],
    ]
    end = 0
    for start, nbytes in sorted(stretches):
        assert start >= end
        assert nbytes > 0
        end = start + nbytes
    assert end <= geometry.nbytes
    assert geometry.counter(last) + 8 <= geometry.watched_nbytes <= geometry.beat(0)
    assert geometry.word(last) % 8 == geometry.descriptor(last) % 64 == geometry.outcome(last) % 64
    for ticket in (0, 1, rows - 1, rows, 10 * rows + 3):
        row, generation = geometry.row(ticket), geometry.generation(ticket)
        assert geometry.ticket(row, layout.pack_word(1, 2, 3, generation)) == ticket


@pytest.mark.parametrize(
    "sizes",
    [
        (0, 2, 1 << 20),
        (layout.MAX_ROWS + 1, 2, 1 << 20),
        (8, 1, 1 << 20),
        (8, 2, 100),
        (8, 2, 1 << 49),
    ],
)
def test_a_geometry_outside_its_limits(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError):
        Geometry(*sizes)


def test_identity() -> None:
    geometry = Geometry(8, 3, 1 << 20)
    geometry.check_identity(geometry.identity())
    with pytest.raises(LayoutError, match="same version"):
        Geometry(9, 3, 1 << 20).check_identity(geometry.identity())
    with pytest.raises(LayoutError):
        geometry.check_identity(bytes(layout.IDENTITY_NBYTES))


# --- protocol -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("step", [step for step in Step if step not in (Step.RESERVE, Step.CLAIM)])
def test_steps_are_those_of_the_table(state: State, step: Step) -> None:
    word = layout.pack_word(state, 5, 2, 9)
    if step is Step.GIVE_BACK:
        word = layout.next_tasks(word, 0, stride=True)
    if (state, step) in TRANSITIONS:
        found = after(word, step)
        assert layout.state_of(found) == TRANSITIONS[state, step]
        assert (layout.owner_of(found), layout.attempt_of(found)) == (5, 2)
        assert layout.generation_of(found) == 9
        assert layout.ended_of(found) == (step is Step.NEXT)
        assert layout.is_recalled(found) == (step in (Step.RECALL, Step.GIVE_BACK))
    else:
        with pytest.raises(ProtocolError, match=state.name):
            after(word, step)


@pytest.mark.parametrize("state", State)
def test_claim_and_reserve_name_the_new_owner(state: State) -> None:
    word = layout.pack_word(state, 5, 2, 9)
    if state is State.READY:
        assert protocol.claim(word, 7) == layout.pack_word(State.CLAIMED, 7, 2, 9)
    else:
        with pytest.raises(ProtocolError):
            protocol.claim(word, 7)
    if state is State.FREE:
        assert protocol.reserve(word, 7, 10) == layout.pack_word(State.RESERVED, 7, 0, 10)
    if state is State.RESERVED:
        assert protocol.publish(word, 3) == layout.pack_word(State.READY, 5, 3, 9)
        assert layout.attempt_of(protocol.publish(word, 1000)) == layout.MAX_ATTEMPT
    else:
        with pytest.raises(ProtocolError):
            protocol.publish(word, 3)
    for generation in (8, 9, layout.MAX_GENERATION + 1):
        with pytest.raises(ProtocolError):
            protocol.reserve(word, 7, generation)


def test_every_state_can_be_left_and_reached() -> None:
    assert {state for state, _ in TRANSITIONS} == set(State)
    assert set(TRANSITIONS.values()) == set(State)
    assert {step for _, step in TRANSITIONS} == set(Step)


# --- arena --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_region_against_a_map_of_bytes(seed: int) -> None:
    chance = random.Random(seed)
    stretch = Extent(4096, 64 * 200)
    region, used, held = Region(stretch), bytearray(stretch.nbytes), []
    for _ in range(600):
        if held and chance.random() < 0.5:
            extent = held.pop(chance.randrange(len(held)))
            region.release(extent)
            start = extent.offset - stretch.offset
            used[start : start + extent.nbytes] = bytes(extent.nbytes)
            with pytest.raises(ProtocolError):
                region.release(extent)
            continue
        nbytes = chance.choice([0, 1, 63, 64, 65, 500, 3000])
        extent = region.reserve(nbytes)
        needed = bytes(-(-max(1, nbytes) // 64) * 64)
        lines = b"".join(b"x" if any(used[i : i + 64]) else b"." for i in range(0, len(used), 64))
        assert (extent is None) == (b"." * (len(needed) // 64) not in lines)
        if extent is not None:
            start = extent.offset - stretch.offset
            assert extent.offset % 64 == 0
            assert extent.nbytes == nbytes
            assert 0 <= start <= stretch.nbytes - len(needed)
            assert not any(used[start : start + len(needed)]), "given twice"
            used[start : start + max(1, nbytes)] = b"\1" * max(1, nbytes)
            held.append(extent._replace(nbytes=max(1, nbytes)))
    for extent in held:
        region.release(extent)
    assert region.reserve(stretch.nbytes) == stretch


def test_region_takes_back_only_what_it_gave() -> None:
    region = Region(Extent(4096, 4096))
    for foreign in (Extent(0, 64), Extent(4096, 64), Extent(8192, 64)):
        with pytest.raises(ProtocolError, match="not reserved"):
            region.release(foreign)
