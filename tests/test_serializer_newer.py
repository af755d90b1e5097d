"""What scripts have from Python 3.15 on: sentinels, lazy imports."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.version_info < (3, 15), reason="this is Python 3.15")


def test_a_sentinel_of_the_script_is_the_same_everywhere(run_script):
    run_script("""
        import dataclasses

        NOTHING = sentinel("NOTHING")
        SHOWN = sentinel("SHOWN", repr="<shown>")

        @dataclasses.dataclass
        class Row:
            value: object = NOTHING

        def task(given, row, default=NOTHING):
            same = given is NOTHING is default is row.value is Row().value
            return same, NOTHING, repr(SHOWN), Row(SHOWN)

        for _ in range(3):
            same, mark, shown, row = run(task, NOTHING, Row())
            assert same and mark is NOTHING and row.value is SHOWN
            assert shown == "<shown>"
        assert worker.code_ids_used[-1] and worker.code_ids_used[-2] == worker.code_ids_used[-1]
    """)


def test_sentinels_need_not_have_the_names_that_they_are_found_by(run_script):
    run_script("""
        _MISSING = sentinel("MISSING")
        KEEP = sentinel("KEEP")

        class Field:
            EMPTY = sentinel("Field.EMPTY")
            KEEP = sentinel("KEEP")
            def get(self, kept=KEEP): return kept is self.KEEP is not KEEP

        def made():
            LOCAL = sentinel("LOCAL")
            def is_default(given=LOCAL): return given is LOCAL
            return is_default, LOCAL

        is_default, local = made()

        def task(field, *marks):
            here = _MISSING, KEEP, Field.EMPTY, Field.KEEP
            same = all(a is b for a, b in zip(marks, here, strict=True))
            return same and field.get() and is_default(), *here

        marks = _MISSING, KEEP, Field.EMPTY, Field.KEEP
        for _ in range(3):
            same, *home = run(task, Field(), *marks)
            assert same and all(a is b for a, b in zip(marks, home, strict=True))
            assert run(is_default, local)
            assert run(lambda: Field.KEEP) is Field.KEEP
    """)


def test_what_is_imported_lazily_is_imported_for_the_task(run_script):
    run_script("""
        lazy import colorsys
        lazy import xml.dom.minidom
        lazy import xml.sax
        lazy import html.entities as entities
        lazy from nowhere import Missing
        lazy from wave import open as opened

        class Converter:
            def convert(self, *color: Missing) -> Missing: return colorsys.rgb_to_hsv(*color)

        def task(value: Missing) -> Missing:
            modules = xml.sax, xml.dom.minidom, entities, opened
            return Converter().convert(0, 0, value), [it.__name__ for it in modules]

        def never(): return Missing

        names = ["xml.sax", "xml.dom.minidom", "html.entities", "open"]
        for _ in range(5):
            assert run(task, 1) == ((2 / 3, 1, 1), names)
            code_id = worker.code_ids_used[-1]
            assert "No module named 'nowhere'" in str(failure(never))
            assert run(Converter().convert, 0, 0, 2) == (2 / 3, 1, 2)
        assert run(task, 1) == ((2 / 3, 1, 1), names)
        assert worker.code_ids_used[-1] == code_id != None
    """)
