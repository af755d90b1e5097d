"""Tensors of PyTorch, pickled as arrays are: the elements out of band, and no others.

PyTorch writes all of the memory that a tensor is a view of, so that a row of a matrix takes the
matrix along, and in a file format of its own: that takes 0.4 ms for the smallest tensor, and 3 ms
for each MiB.  What is not dense, plain and in this process's own memory is left to PyTorch.

As with PyTorch's own pickles, tensors that share memory have memory of their own afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pickle import PickleBuffer
from types import SimpleNamespace
from typing import Any, Final

from ..lazy import np
from .byname import PROTOCOL

_reducers: Final[dict[type, Callable[[Any], Any]]] = {}
"""Of one type; empty until PyTorch is imported."""


def reducers() -> dict[type, Callable[[Any], Any]]:
    """Return what pickles tensors, for a ``dispatch_table``; nothing without PyTorch.

    Notes
    -----
    Cost: 0.1 us.
    """
    if not _reducers and "torch" in sys.modules:
        tensor = getattr(sys.modules["torch"], "Tensor", None)
        if tensor is not None:  # else another thread is importing it
            _reducers[tensor] = _reduce
    return _reducers


def restore(
    elements: Any, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], with_grad: bool
) -> Any:
    """Return a tensor that has its memory for itself, and may be resized."""
    torch = import_module("torch")
    memory = torch.empty(memoryview(elements).nbytes, dtype=torch.uint8, device="cpu")
    _bytes(memory, memory.numel())[:] = np.frombuffer(elements, np.uint8)
    tensor = torch.empty(0, dtype=getattr(torch, dtype), device="cpu")
    tensor.set_(memory.untyped_storage(), 0, shape, strides)
    return tensor.requires_grad_() if with_grad else tensor


def _reduce(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if not _is_plain(tensor, torch):
        return tensor.__reduce_ex__(PROTOCOL)
    shape, strides = tuple(tensor.shape), tensor.stride()
    extent = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    elements = PickleBuffer(_bytes(tensor, extent * tensor.element_size()))
    dtype = str(tensor.dtype).removeprefix("torch.")
    return restore, (elements, dtype, shape, strides, tensor.requires_grad)


def _bytes(tensor: Any, nbytes: int) -> Any:
    """Return an array of what a tensor has from its first element on, which keeps that."""
    place = tensor.data_ptr(), False
    said = {"version": 3, "data": place, "shape": (nbytes,), "typestr": "|u1"}
    # With Tensor.numpy() the tensor could not be resized any more.
    return np.asarray(SimpleNamespace(tensor=tensor, __array_interface__=said))


def _is_plain(tensor: Any, torch: Any) -> bool:
    """Return whether elements, dtype, shape and strides say all of a tensor."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_nested or tensor.is_quantized)
        and not getattr(tensor, "has_names", bool)()  # gone from PyTorch 2.13
        and not (tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor())
        and not (vars(tensor) or tensor._backward_hooks)
        and tensor.numel() > 0
    )
