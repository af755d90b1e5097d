"""Tensors of PyTorch: what crosses, and how much.  Skipped without PyTorch."""

from __future__ import annotations

import copyreg
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from workpool.serializer import unpack
from workpool.serializer.frames import as_bytes
from workpool.serializer.values import encode

torch: Any = pytest.importorskip("torch")

MATRIX = torch.arange(12000, dtype=torch.float32).reshape(100, 120)


def there(obj: object) -> Any:
    return unpack(bytearray(as_bytes(encode(obj))))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64", "uint16", "int8"])
@pytest.mark.parametrize("n", [1, 3, 50_000])
def test_each_dtype(dtype: str, n: int) -> None:
    tensor = (torch.arange(n) % 5).to(getattr(torch, dtype))
    copy = there(tensor)
    assert copy.dtype is tensor.dtype
    assert copy.tolist() == tensor.tolist()


@pytest.mark.parametrize(
    "tensor",
    [
        MATRIX,
        MATRIX[3],
        MATRIX.t(),
        MATRIX[::7, 5:77:2],
        MATRIX[:, 4],
        torch.ones(1).expand(1000, 1000),
        torch.tensor(3.0),
        torch.empty(0),
        torch.empty(3, 0),
        MATRIX.clone().requires_grad_(),
        torch.nn.Parameter(MATRIX, requires_grad=False),
        torch.ones(2, 3, 8, 8).to(memory_format=torch.channels_last),
        torch.randn(5, dtype=torch.complex64).conj(),
        torch.randn(5, dtype=torch.complex64).conj().imag,
    ],
)
def test_it_is_the_same_tensor(tensor: Any) -> None:
    copy = there(tensor)
    assert type(copy) is type(tensor)
    assert torch.equal(copy, tensor)
    assert copy.stride() == tensor.stride()
    assert copy.requires_grad == tensor.requires_grad
    assert copy.is_conj() == tensor.is_conj()
    assert copy.is_neg() == tensor.is_neg()


def test_what_is_not_plain_is_left_to_pytorch() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tensor in (MATRIX.to_sparse(), MATRIX.to_sparse_csr()):
            assert torch.equal(there(tensor).to_dense(), MATRIX)
    named = torch.ones(3)
    named.label = "kept"
    assert there(named).label == "kept"
    assert there(torch.empty(3, device="meta")).is_meta


def test_no_more_crosses_than_it_has() -> None:
    assert len(encode(MATRIX[3])) < 1000
    assert len(encode([*MATRIX])) < 1.5 * MATRIX.nbytes
    assert len(encode(torch.ones(1).expand(1000, 1000))) < 1000


@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: (it,), lambda it: {"x": [it]}])
def test_a_large_one_is_out_of_band_in_each_way_to_pickle(wrap: Callable[[Any], Any]) -> None:
    large = torch.ones(100_000)
    assert large.data_ptr() == memory_of(wrap(large))
    assert large.data_ptr() == memory_of(lambda: wrap(large))  # by value


def memory_of(obj: object) -> int:
    import numpy as np

    encoded: Any = encode(obj)
    return np.frombuffer(max(encoded.segments, key=len), np.uint8).ctypes.data


def test_it_has_memory_of_its_own() -> None:
    tensor = torch.ones(100_000)
    content = bytearray(as_bytes(encode(tensor)))
    copy = unpack(content)
    content[:] = bytes(len(content))
    assert copy.sum() == 100_000
    for each in tensor, copy:
        assert each.resize_(200_000).numel() == 200_000


def test_its_memory_is_kept_as_long_as_the_encoding() -> None:
    encoded = [encode((torch.full((100_000,), i),)) for i in range(9)]
    assert [int(unpack(bytearray(as_bytes(it)))[0].sum()) for it in encoded] == [
        i * 100_000 for i in range(9)
    ]


def test_a_module_and_what_trains_it() -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    copy, trains = there((model, optimizer))
    assert torch.equal(copy.weight, model.weight)
    assert trains.param_groups[0]["params"][0] is copy.weight


def test_whoever_has_said_how_tensors_are_pickled_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(copyreg.dispatch_table, torch.Tensor, lambda it: (list, ((1, 2),)))
    for obj in (MATRIX, (MATRIX,)):
        assert there(obj) in ([1, 2], ([1, 2],))
