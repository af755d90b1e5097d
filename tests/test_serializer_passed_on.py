"""What comes along with a function: passed on, or read, and one thing with its arguments."""

from __future__ import annotations

import functools
import itertools
import time

import pytest
from scripted import STATEFUL, Job, define, looked_up_again

from workpool.pool.mapping.cutter import Cutter
from workpool.schedule import Schedule
from workpool.serializer.blocks import Blocks, encode_blocks
from workpool.serializer.reach import Torn
from workpool.serializer.snapshot import Snapshot

PASSED_ON = """
def apply(fn, *args, **kwargs): return fn(*args, **kwargs)
def double(x): return x * FACTOR
def triple(x): return x * 3
def same(first, others): return [it is first for it in others]
def is_double(fn): return fn is double
def scaled(n):
    def fn(x): return x * n
    return fn
class Point:
    def __init__(self, x): self.x = x
FACTOR = 2
"""


def cutter_of(fn, codes, several=False):
    """Return what cuts the items of a map for two workers."""
    return Cutter(itertools.count().__next__, 2, fn, codes, Schedule.ADAPTIVE, several=several)


def blocks_of(stretch):
    """Return the items of a stretch as a worker reads them."""
    content = memoryview(stretch.segments[0].content)
    return Blocks(content, lambda start, stop: content[start:stop])


@pytest.fixture
def job():
    return Job(define(PASSED_ON))


def test_a_function_that_is_passed_on_comes_along(job):
    made = job.made
    code = job.settle(made.apply, made.double, 4)
    for i in range(3):
        result, now, payload = job.run(made.apply, made.double, i)
        assert (result, now) == (2 * i, code)
        assert len(payload) < 100
    result, now, payload = job.run(made.apply, functools.partial(made.double, x=5))
    assert (result, now) == (10, code)
    assert len(payload) < 200
    result, more, _ = job.run(made.apply, made.triple, 2)  # it is seen for the first time
    assert (result, more) == (6, code)
    result, more, payload = job.run(made.apply, made.triple, x=2)
    assert (result, len(payload) < 100) == (6, True)
    assert job.settle(made.apply, made.double, 1) is more  # which has both


def test_what_is_passed_on_is_one_thing(job):
    made = job.made
    job.settle(made.same, made.double, [made.double, made.triple])
    result, _, payload = job.run(made.same, made.double, [made.double, made.triple, made.double])
    assert (result, len(payload) < 200) == ([True, False, True], True)
    job.settle(made.is_double, made.double)
    assert job.run(made.is_double, made.double)[0]
    assert not job.run(made.is_double, made.triple)[0]


def test_a_change_of_what_came_along_is_seen(job):
    made = job.made
    before = job.settle(made.apply, made.double, 1)
    made.script["FACTOR"] = 5
    assert job.run(made.apply, made.double, 1)[0] == 5
    after = job.settle(made.apply, made.double, 1)
    assert after.code_id > before.code_id
    assert job.run(made.apply, made.double, 2)[:2] == (10, after)


def test_a_function_that_changes_for_every_task_does_not_hold_up_the_one_it_is_passed_to(job):
    made = job.made
    job.settle(made.apply, made.double, 1)
    codes = set()
    for i in range(200):
        made.script["FACTOR"] = i
        result, code, _ = job.run(made.apply, made.double, 1)
        assert result == i
        codes.add(code)
    assert len(codes) < 20
    assert job.run(made.apply, made.triple, 1)[0] == 3


def test_functions_made_anew_leave_no_codes(job):
    made = job.made
    code = job.settle(made.apply, made.double, 1)
    for i in range(100):
        assert job.run(made.apply, made.scaled(i), 3)[:2] == (3 * i, code)


def test_those_that_came_along_first_make_room_in_the_end(job):
    made = job.made
    many = [made.scaled(i) for i in range(17)]
    for fn in many:
        code = job.settle(made.apply, fn, 1)
    for _ in range(200):
        assert job.run(made.apply, many[-1], 2)[:2] == (32, code)
    latest = [len(job.run(made.apply, many[-1], 2)[2]) for _ in range(100)]
    assert latest[0] > 100 > latest[-1]
    assert job.run(made.apply, many[0], 2)[0] == 0


def test_items_of_a_map_go_with_the_code_that_they_refer_to(job):
    made, first = job.made, job.made.scaled(2)
    cutter = cutter_of(made.apply, job.codes, several=True)

    def stretch(fn):
        found = None
        for _ in range(3):
            (found,) = cutter.cut(cutter.begin([(fn, x) for x in range(20)]), False)
        return found

    before = stretch(first)
    others = [stretch(made.scaled(n)).code for n in range(20)]
    for _ in range(300):  # those that came along first make room
        after = stretch(made.double)
    assert before.code.refer.to(first) is not None
    assert after.code.refer.to(made.double) is not None
    assert after.code.refer.to(first) is None
    assert len({before.code, *others, after.code}) > 16


def test_what_a_task_leaves_in_a_function_that_came_along_is_gone_for_the_next(job):
    made = define(PASSED_ON + STATEFUL)
    job = Job(made)
    for name in ("counts", "has_attribute", "counts_in_cell", "alters_other"):
        fn = getattr(made, name)
        job.settle(made.apply, fn)
        results = [job.run(made.apply, fn) for _ in range(3)]
        assert {result for result, _, _ in results} == {1}
        assert all(len(payload) < 100 for _, _, payload in results)


def test_what_reads_many_functions_that_the_other_has_takes_no_long_search():
    chain = [f"def f{n}(x): return f{n + 1}(x)" for n in range(40)]
    made = define("\n".join([*chain, "f40 = abs", "def task(fn): return fn(f0(1))"]))
    job = Job(made)
    job.settle(made.task, made.f0)
    begun = time.process_time()
    for n in range(5):
        fn = eval(f"lambda x: f0(x) + {n}", made.script)
        assert job.run(made.task, fn)[0] == 1 + n
    assert time.process_time() - begun < 0.5  # each was compared with each by way of each


SHARED = """
import collections
import numpy as np
def put(x): LIST.append(x)
def work(put, found): put(1); return list(found)
def nested(put, them): put(1); return list(them["found"])
class Counted:
    def __init__(self): self.n, self.read = 0, lambda: self.n
    def count(self, other=None):
        self.n = 5
        return [self.read()]
    def __call__(self, other): self.n += 1; return [other.n]
def counts(counted): return counted.count()
def writes(array): array[0] += 1; return list(ARRAY)
def writes_first(arrays): return writes(arrays[0])
def writes_and_calls(array, fn): fn(); return writes(array)
def is_missing(x): return [x is MISSING]
def are_missing(*items): return [is_missing(*item[:1])[0] for item in items]
def asks(fn, x): return fn(x)
def gives_missing(): return MISSING
def is_the_same(fn): return [fn() is MISSING]
def nothing(): pass
def lists(them): them.append(1); return LIST if len(ARRAY) else None
def queues(queue): queue.append(1); return list(QUEUE)
def lists_and_calls(them, fn): fn(); them.append(1); return LIST
def appends(them): them.append(1); return LIST
def appends_within(them, fn): them[0].append(fn()); return LIST
LIST, ARRAY, QUEUE, MISSING = [], np.zeros(2), collections.deque(), object()
COUNTED = Counted()
def appends_to_row(row): row.append(1); return LONG[300]
def appends_to_row_of_slots(row): row.append(1); return SLOTS.rows[1]
class Slots: __slots__ = ("rows",)
LONG, SLOTS = [0] * 300 + [[]], Slots()
SLOTS.rows = [[], []]
"""


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("work, put, LIST", [1]),
        ("nested, put, {'found': LIST}", [1]),
        ("counts, COUNTED", [5]),
        ("COUNTED.count,", [5]),
        ("COUNTED, COUNTED", [1]),
        ("writes, ARRAY", [1, 0]),
        ("writes_first, [ARRAY]", [1, 0]),
        ("appends_to_row, LONG[300]", [1]),
        ("appends_to_row_of_slots, SLOTS.rows[1]", [1]),
        ("lists, LIST", [1]),
        ("writes_and_calls, ARRAY, nothing", [1, 0]),
        ("writes_and_calls, ARRAY, lambda: None", [1, 0]),
        ("queues, QUEUE", [1]),
        ("lists_and_calls, LIST, nothing", [1]),
        ("appends, LIST", [1]),
        ("appends_within, [LIST], lambda: 1", [1]),
        ("asks, is_missing, MISSING", [True]),
        ("is_missing, MISSING", [True]),
        ("are_missing, (MISSING, 1), (2,)", [True, False]),
    ],
)
def test_what_is_passed_stays_one_with_what_has_come_along(call, result):
    job = Job(define(SHARED))
    for _ in range(5):
        assert job.run(*eval(f"({call})", job.made.script))[0] == result


def test_a_mark_that_items_and_their_function_know_stays_one():
    made = define(SHARED)
    with pytest.raises(Torn):
        encode_blocks([made.gives_missing], False, made.is_the_same)


def test_what_is_passed_by_a_keyword_stays_one_with_what_the_function_reads():
    job = Job(define(SHARED))
    for _ in range(5):
        assert job.run(job.made.appends, them=job.made.LIST)[0] == [1]


def test_arguments_that_have_nothing_of_a_function_that_reads_an_array_leave_it_its_code(job):
    made = define(SHARED)
    code = job.settle(made.writes, [0])
    more = ([0], made.ARRAY.copy(), {0: 1})
    for arg in more:
        _, now, payload = job.run(made.writes, arg)
        assert (now, len(payload) < 200) == (code, True)


def test_what_an_object_keeps_outside_its_pickle_is_not_there_for_the_next(job):
    made = define(
        """if True:
        def remembers(): FORGETFUL.seen.append(1); return len(FORGETFUL.seen)
        def raises():
            try: raise ERROR
            except ValueError as error: trace = error.__traceback__
            return 1 if trace.tb_next is None else 2
    """,
        FORGETFUL=Forgetful(),
        ERROR=ValueError("x"),
    )
    for fn in (made.remembers, made.raises):
        code = job.settle(fn)
        assert [job.run(fn)[:2] for _ in range(3)] == [(1, code)] * 3


class Forgetful:
    """Has a cache, which its pickle has not."""

    def __init__(self):
        self.seen = []

    def __reduce__(self):
        return Forgetful, ()


def test_an_exception_of_any_kind_while_a_state_is_looked_at_is_left_to_pack_call(codes):
    class Stop(BaseException):
        pass

    class Stops:
        def __reduce__(self):
            raise Stop

    made = define("def fn(): return STOPS", STOPS=Stops())
    Stops.__module__ = "nowhere"
    assert [codes.lookup(made.fn) for _ in range(3)] == [None] * 3


def test_what_is_large_and_changes_for_every_task_is_looked_at_ever_less_often(codes, monkeypatch):
    made = define("def fn(): return LONG", LONG=list(range(1000)))
    looks = []
    take = Snapshot.take
    monkeypatch.setattr(Snapshot, "take", lambda *roots: looks.append(1) or take(*roots))
    for i in range(300):
        made.LONG[0] = i
        codes.lookup(made.fn)
    assert len(looks) < 12
    for _ in range(100):
        code = codes.lookup(made.fn)
    assert code is not None


def test_a_class_of_arguments_comes_along_though_the_function_changes_now_and_then(job):
    made = define("def fn(p): return p.x + STEP", STEP=0)
    point = job.made.Point(1)
    whole = 0
    for i in range(400):
        if i % 20 == 0:
            made.script["STEP"] = i
        result, _, payload = job.run(made.fn, point)
        assert result == 1 + made.script["STEP"]
        whole += len(payload) > 150
    assert whole < 50


def test_what_an_item_of_a_map_refers_to_is_as_it_is_when_the_item_is_taken(job):
    made = job.made
    job.settle(made.apply, made.double, 1)
    cutter = cutter_of(made.apply, job.codes, several=True)
    for factor in range(4):
        made.script["FACTOR"] = factor
        (stretch,) = cutter.cut(cutter.begin([(made.double, 1)]), False)
        job.callables.add(stretch.code.code_id, stretch.code.data)
        fn = job.callables.get(stretch.code.code_id)
        ((sent, items),) = blocks_of(stretch).pieces(range(1))
        assert [(sent or fn)(*item) for item in items] == [factor]


SCALE = """
class Scale:
    def __init__(self, factor): self.factor = factor
    def times(self, x):
        if type(x) is type(self): return self.factor * x.factor, True
        return self.factor * x, False
"""


def test_a_method_goes_with_the_items_of_a_map_without_its_class(job):
    made = define(SCALE)
    fn = made.Scale(3).times

    def mapped(items):
        cutter = cutter_of(fn, job.codes)
        assert cutter._owner is made.Scale
        (stretch,) = cutter.cut(cutter.begin(items), False)
        job.callables.add(stretch.code.code_id, stretch.code.data)
        job.callables.get(stretch.code.code_id)
        blocks = blocks_of(stretch)
        ((sent, found),) = blocks.pieces(range(len(items)))
        assert sent is None
        assert blocks.has_function
        return [blocks.function()(item) for item in found], len(stretch.segments[0].content)

    assert mapped([1, 2])[0] == [(3, False), (6, False)]
    assert mapped([1, 2])[1] < 300
    assert mapped([made.Scale(2)] * 3)[0] == [(6, True)] * 3


def test_what_folds_the_results_of_a_map_is_no_part_of_the_function(codes):
    made = define("def fn(x): return x\ndef operation(a, b): return a + b")
    code = looked_up_again(codes, made.fn)
    for _ in range(2):
        assert encode_blocks([made.operation], False, beside=code.reach) is not None, "torn"
        assert encode_blocks([1], False, made.operation, beside=code.reach) is not None


@pytest.mark.parametrize("several", [False, True])
def test_an_item_of_a_map_stays_one_with_what_the_function_reads(several):
    job = Job(define(SHARED))
    fn = job.made.is_missing
    items = [1, job.made.MISSING]
    cutter = cutter_of(fn, job.codes, several)
    (stretch,) = cutter.cut(cutter.begin([(it,) for it in items] if several else items), False)
    ((sent, items),) = blocks_of(stretch).pieces(range(2))
    assert [sent(*item) for item in (items if several else zip(items))] == [[False], [True]]


def test_a_callable_object_crosses_once(job):
    made = define("""if True:
        class Scaled:
            def __init__(self, factor): self.factor, self.calls = factor, 0
            def __call__(self, x):
                self.calls += 1
                return x * self.factor, self.calls
        scaled = Scaled(3)
    """)
    job = Job(made)
    code = job.settle(made.scaled, 1)
    assert job.run(made.scaled, 2)[:2] == ((6, 1), code)
    assert job.run(made.scaled, 3)[:2] == ((9, 1), code)
    made.scaled.factor = 4
    assert job.run(made.scaled, 2)[0] == (8, 1)
    assert all(job.run(made.Scaled(i), 1)[0] == (i, 1) for i in range(50))
