"""What pickle knows only by a name, or not at all, made anew: see ``test_serializer_processes``."""

from __future__ import annotations


def test_locks_of_the_script_are_made_anew(run_script):
    run_script("""
        import functools, threading
        lock, again, local = threading.Lock(), threading.RLock(), threading.local()
        lock.acquire()
        local.count = 10

        class Register:
            lock = threading.Lock()
            numbers = {}

            @classmethod
            def of(cls, name):
                with cls.lock:
                    return cls.numbers.setdefault(name, len(cls.numbers))

        class PerThread(threading.local):
            def __init__(self): self.count = 5
        per_thread, event = PerThread(), threading.Event()
        event.set()
        several = {"a": threading.Lock(), "b": [threading.Semaphore(3)]}

        class Memory:
            def __init__(self): self.lock, self.known = threading.Lock(), {}
            def get(self, key, make):
                with self.lock:
                    return self.known.setdefault(key, make())
        memory = Memory()

        def synchronized(function):
            mutex = threading.RLock()
            @functools.wraps(function)
            def wrapper(*args):
                with mutex:
                    return function(*args)
            return wrapper

        @synchronized
        def recall():
            with several["a"], several["b"][0]: pass
            return event.is_set(), per_thread.count, memory.get("a", lambda: 7)

        def recalls(): return recall()

        def count():
            assert lock.locked()
            local.count = getattr(local, "count", 0) + 1
            return local.count

        def task(name):
            with lock, again, again:
                return Register.of(name), count(), count()

        for _ in range(3):
            assert run(task, "a") == (0, 1, 2)
        assert run(Register().of, "a") == 0
        memory.known["a"] = 8
        for function in (recall, recalls):
            assert run(function) == (True, 5, 8)
        assert local.count == 10 and lock.locked()
    """)


def test_a_context_variable_of_the_script_is_made_anew(run_script):
    run_script("""
        from contextvars import ContextVar
        depth, name = ContextVar("depth", default=[1]), ContextVar("name")
        depth.set([5])
        def inner(): return depth.get(), name.get(None)
        def task():
            before = inner()
            name.set("task")
            return before, inner()
        for _ in range(3):
            assert run(task) == (([1], None), ([1], "task"))
        assert name.get(None) is None
        assert "argument 1 of 1" in str(failure(lambda variable: variable.get(), depth))
    """)


def test_what_a_decorator_of_a_module_makes_goes_by_its_name_in_the_script(run_script):
    run_script(
        """
        import private
        @private.Cached
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        def task(n): return fib(n), fib.known[n]
        for _ in range(2):
            assert run(task, 20) == (6765, 6765)
            assert run(fib, 20) == 6765
        assert not fib.known
        """,
        private="""
            import functools, threading
            class Cached:
                def __init__(self, function):
                    functools.update_wrapper(self, function)
                    self.known, self.lock = {}, threading.RLock()
                def __call__(self, n):
                    with self.lock:
                        if n not in self.known:
                            self.known[n] = self.__wrapped__(n)
                        return self.known[n]
                def __reduce__(self): return self.__qualname__
        """,
    )


def test_what_a_module_has_put_in_its_own_place_is_imported(run_script):
    run_script(
        """
        import facade
        from workpool.serializer.code_cache import CodeCache
        def task(x): return facade.double(x) + facade.late
        facade.late = 1
        for _ in range(3):
            assert run(task, 3) == 6, "the worker has a module of its own"
            assert run(lambda it: it is facade, facade)
        codes = CodeCache()
        found = [codes.lookup(task) for _ in range(3)]
        assert found[1] is found[2] is not None, "it crosses once"
        """,
        facade="""
            import sys
            class Facade:
                def __init__(self, module): vars(self)["_module"] = module
                def __getattr__(self, name): return getattr(self._module, name)
                def __setattr__(self, name, value): setattr(self._module, name, value)
            def double(x): return 2 * x
            late = 0
            sys.modules[__name__] = Facade(sys.modules[__name__])
        """,
    )


def test_what_stands_for_another_object_is_not_asked_before_it_is_whole(run_script):
    module = """
        class Proxy:
            def __init__(self, inner): self.inner = inner
            def __getattr__(self, name): return getattr(self.inner, name)
        def checked(fn):
            proxy = Proxy(fn)
            def call(*args): return proxy.__call__(*args)
            return call
    """
    run_script(
        """
        import inspected
        PROXY = inspected.Proxy(3)
        class Slotted:
            __slots__ = ("inner", "__dict__")
            __getattr__ = inspected.Proxy.__getattr__
        SLOTTED = Slotted()
        SLOTTED.inner, SLOTTED.note = 4, "n"
        class Alone:
            __slots__ = ("inner",)
            __getattr__ = inspected.Proxy.__getattr__
        ALONE = Alone()
        ALONE.inner = 7
        class Numbers(list):
            __getattr__ = inspected.Proxy.__getattr__
        NUMBERS = Numbers([1, 2])
        NUMBERS.inner = 6
        class Told:
            def __getattr__(self, name): return self.parts[name]
            def __getstate__(self): return 5
            def __setstate__(self, state): self.parts = {"state": state}
        TOLD = Told()
        @inspected.checked
        def double(x): return 2 * x
        def task():
            numbers = list(NUMBERS), NUMBERS.real
            return PROXY.real, SLOTTED.real, SLOTTED.note, ALONE.real, *numbers
        for _ in range(3):
            assert run(task) == (3, 4, "n", 7, [1, 2], 6)
            assert run(lambda: TOLD.state) == 5
            assert run(double, 4) == run(lambda: double(4)) == 8
        """,
        inspected=module,
    )


def test_instances_have_a_dictionary_where_they_have_one_in_the_script(run_script):
    run_script("""
        import collections, dataclasses, typing
        X = typing.TypeVar("X")
        Row = collections.namedtuple("Row", "a b")
        class Pair(typing.NamedTuple):
            a: int
        class Numbers(list): __slots__ = ()
        class Several(tuple): __slots__ = ()
        class Generic(tuple, typing.Generic[X]): __slots__ = ()
        class Below(Pair): __slots__ = ()
        class Noted(Row): pass
        @dataclasses.dataclass(slots=True)
        class Point:
            x: int
        ALL = Row, Pair, Numbers, Several, Generic, Below, Noted, Point
        def layouts(): return [(cls.__dictoffset__, cls.__basicsize__) for cls in ALL]
        assert run(layouts) == layouts()
        """)


def test_a_local_that_cannot_be_made_anew_is_as_in_this_thread(run_script):
    run_script("""
        import threading
        class Context(threading.local):
            def __init__(self, path): self.path, self.depth = path, 0
        context = Context("/tmp")
        context.depth = 3
        def task():
            context.depth += 1
            return context.path, context.depth
        for _ in range(2):
            assert run(task) == ("/tmp", 4)
    """)


def test_weak_references_are_to_what_comes_along(run_script):
    run_script("""
        import weakref
        class Node:
            def __init__(self, parent=None):
                self.parent = None if parent is None else weakref.ref(parent)
        root = Node()
        leaf, orphan = Node(root), Node(Node())
        by_name, by_node = weakref.WeakValueDictionary(root=root), weakref.WeakKeyDictionary()
        by_node[root] = 7
        def task():
            assert leaf.parent() is root and orphan.parent() is None
            return by_name["root"] is root, by_node[root], len(by_name)
        for _ in range(2):
            assert run(task) == (True, 7, 1)
    """)


def test_a_struct_travels_as_its_format(run_script):
    run_script("""
        import struct
        HEAD = struct.Struct("<IQ")
        class Reader:
            head = HEAD
            def size(self): return self.head.size
        def task(): return HEAD.pack(1, 2), Reader().size()
        for _ in range(3):
            assert run(task) == (HEAD.pack(1, 2), 12)
        assert worker.code_ids_used[-1]
        def packs(): return HEAD.pack(1, 2)
        for _ in range(3):
            assert run(packs) == HEAD.pack(1, 2)
        assert worker.code_ids_used[-1]
        assert run(lambda head: head.unpack(head.pack(3, 4)), HEAD) == (3, 4)
        assert run(lambda: HEAD).format == HEAD.format
    """)


def test_a_view_of_a_mapping_shows_what_a_task_changes_there(run_script):
    run_script("""
        from types import MappingProxyType
        known = {}
        view = MappingProxyType(known)

        def learns(name):
            known[name] = len(known)
            return dict(view)

        for name in "ab":
            assert run(learns, name) == {name: 0}
    """)


def test_a_library_of_ctypes_is_loaded_again(run_script):
    run_script("""
        import ctypes
        from ctypes import CDLL, CFUNCTYPE, c_double, c_int, util
        maths, here = CDLL(util.find_library("m")), CDLL(None, use_errno=True)
        maths.cos.restype, maths.cos.argtypes = c_double, [c_double]
        sin = maths["sin"]
        sin.restype, sin.argtypes = c_double, (c_double,)
        def check(status, function, args):
            if status < 0:
                raise OSError(ctypes.get_errno(), function.__name__)
            return status
        here.open.errcheck = check
        def task(x): return maths.cos(x), sin(x), maths.abs(-3)
        for _ in range(3):
            assert run(task, 0.0) == (1.0, 0.0, 3)
        assert run(lambda library: library.cos(0.0), maths) == 1.0
        def opens(): return here.open(b"/there/is/no/such", 0)
        error = failure(opens)
        assert error.errno == 2 and "open" in str(error)
        version = ctypes.pythonapi.Py_GetVersion
        version.restype = ctypes.c_char_p
        assert run(lambda: version()) == version()
        back = CFUNCTYPE(c_int)(lambda: 1)
        assert "'back', which the function reads" in str(failure(lambda: back()))
        class Plugin(CDLL):
            def __init__(self, path, name):
                super().__init__(path)
                self.name = name
        plugin = Plugin(util.find_library("m"), "maths")
        assert run(lambda: (plugin.abs(-3), plugin.name)) == (3, "maths")
    """)


def test_a_function_may_have_been_given_the_attributes_of_a_class(run_script):
    run_script("""
        import functools
        def made_by_a_function(cls):
            @functools.wraps(cls)
            def make(*args): return cls(*args)
            return make

        @made_by_a_function
        class Scaled:
            scale = 2
            def __init__(self, x): self.x = x * self.scale

        @made_by_a_function
        class Slots:
            __slots__ = ("x",)
            def __init__(self, x): self.x = x

        whole = made_by_a_function(int)
        def task(x): return Scaled(x).x, Slots(x).x, whole(x), whole.from_bytes

        for _ in range(3):
            assert run(task, "3") == ("33", "3", 3, vars(int)["from_bytes"])
        assert worker.code_ids_used[-1]
        Scaled.__wrapped__.scale = 3
        for _ in range(3):
            assert run(task, "3")[0] == "333"
        assert worker.code_ids_used[-1]
        assert run(whole, "3") == 3
    """)


def test_what_a_module_has_for_nothing_but_its_identity_is_the_same_in_a_task(run_script):
    run_script(
        """
        import private
        class Field:
            default, other, known = private.missing, private.Missing(), private.KNOWN
            steps = [private.SHIFT, private.REDUCE, private.Step("SHIFT"), private.JUMP]
            def get(self, x=private.missing):
                same = [it is private.missing for it in (self.default, self.other, x)]
                return same, self.known is private.KNOWN, self.known.number
            def named(self):
                marks = private.SHIFT, private.REDUCE, private.SHIFT, private.JUMP
                return [it is mark for it, mark in zip(self.steps, marks)]
        def task(*args): return Field().get(*args)
        for _ in range(3):
            assert run(task) == ([True, False, True], False, 3)
            assert run(Field().get) == ([True, False, True], False, 3)
            assert run(Field().named) == [True, True, False, False]
        assert worker.code_ids_used[-1]
        """,
        private="""
            class Missing:
                __slots__ = ()
            class Known:
                def __init__(self): self.number = 3
            class Step:
                def __init__(self, name): self.name = name
            missing, KNOWN = Missing(), Known()
            SHIFT, REDUCE, JUMP = Step("SHIFT"), Step("REDUCE"), Step("a jump")
        """,
    )


def test_a_context_manager_may_be_the_decorator_of_a_task(run_script):
    script = """
        import contextlib
        seen = []
        @contextlib.contextmanager
        def noted(name, *, end):
            seen.append(name)
            yield
            seen.append(end)
        @noted("before", end="after")
        def task(x): return [x, *seen]
        class Tasks:
            @noted("first", end="last")
            def twice(self, x): return 2 * x, seen.copy()
        for _ in range(3):
            assert run(task, 1) == [1, "before"] and run(Tasks().twice, 2) == (4, ["first"])
        entered = noted("", end="")
        with entered: assert "generator" in str(failure(lambda: entered))
    """
    run_script(script)
