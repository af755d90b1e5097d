"""What a map's function and its items have in common is one thing where they are called as well."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any

import numpy as np
import pytest
from stepped_pool import Make

from workpool.serializer import Blocks, encode_blocks
from workpool.serializer.common import in_common


class Node:
    pass


class Graph:
    def __init__(self, nodes: int) -> None:
        self.nodes = [Node() for _ in range(nodes)]
        self.edges = [*zip(self.nodes, self.nodes[1:], strict=False)]
        self.place = {node: number for number, node in enumerate(self.nodes)}
        self.arrays = [np.full(3, number) for number in range(nodes)]

    def at(self, node: Node) -> int:
        return self.place[node]

    def length(self, edge: tuple[Node, Node]) -> tuple[int, bool]:
        return self.between(*edge), any(edge is other for other in self.edges)

    def between(self, first: Node, second: Node) -> int:
        return self.place[second] - self.place[first]

    def has(self, array: Any) -> bool:
        return any(map(functools.partial(is_, array), self.arrays))

    def calls(self) -> Iterable[tuple[Callable[..., Any], list[Any]]]:
        yield self.at, self.nodes
        yield functools.partial(list.index, self.nodes), self.nodes
        yield self.place.__getitem__, self.nodes
        yield self.length, self.edges
        yield self.has, [*self.arrays, np.zeros(3)]


@pytest.mark.parametrize("schedule", ["adaptive", "self", "static"])
@pytest.mark.parametrize("nodes", [3, 700])
def test_what_an_object_holds_its_methods_know(make: Make, nodes: int, schedule: str) -> None:
    pool, graph = make(2), Graph(nodes)
    for call, items in graph.calls():
        assert list(pool.map(call, items, schedule=schedule)) == list(map(call, items))
    starts = [(graph.nodes[0], node) for node in graph.nodes]  # tuples that it does not hold
    assert list(pool.starmap(graph.between, starts, schedule=schedule)) == [*range(nodes)]
    assert list(pool.map(graph.between, graph.nodes, graph.nodes)) == [0] * nodes
    assert pool.reduce(graph.at, graph.nodes) == sum(range(nodes))


def test_what_is_held_crosses_once() -> None:
    graph = Graph(300)
    for call, items in graph.calls():
        alone = encode_blocks([0] * len(items), False, call)
        encoded = encode_blocks(items, False, call)
        assert alone is not None
        assert encoded is not None
        assert len(encoded) - len(alone) < 20 * len(items)


def test_items_and_function_are_forgotten_together() -> None:
    graph = Graph(9)
    encoded = encode_blocks(graph.nodes, False, graph.at, size=4)
    assert encoded is not None
    blocks = Blocks(encoded, lambda start, stop: encoded[start:stop])
    found = []
    for _ in range(2):
        ((_, items),) = blocks.pieces(range(2, 7))
        assert list(map(blocks.function(), items)) == [2, 3, 4, 5, 6]
        found += items
        blocks.forget()
    assert len({*map(id, found)}) == 10, "nothing of a node is left that a task may have changed"


def test_what_is_the_same_everywhere_is_not_looked_for() -> None:
    graph = Graph(2)
    graph.nodes += ["a", 1.5, Node]
    assert in_common(graph.at, graph.nodes) == graph.nodes[:2]
    assert in_common(graph.at, ["a", 1.5, Node, (1, 2)]) == []
    assert in_common(graph.at, [Node(), (Node(), graph.nodes[0])]) == [graph.nodes[0]]
    assert in_common(lambda: graph, [graph]) == [graph]
