"""What pyright knows of the results of public calls. `make lint` checks this file; nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

import louver
import louver.torch
from louver.formats.check import CheckReport
from louver.torch.report import Report


def numpy_arrays(w: NDArray[np.float16], x: NDArray[np.float16], n: int) -> None:
    assert_type(louver.prune(w, "2:4"), NDArray[Any])
    assert_type(louver.check(w, "2:4"), CheckReport)
    s = assert_type(louver.compress(w, "2:4"), louver.SparseTensor)
    assert_type(louver.linear(x, s), NDArray[Any])
    assert_type(louver.linear(x, s, out_dtype="f32", activation="silu"), NDArray[Any])
    assert_type(louver.matmul(s, x), NDArray[Any])
    assert_type(louver.matmul(x, s.T), NDArray[Any])
    assert_type(s @ x, NDArray[Any])
    run = assert_type(louver.plan("linear", s, n), louver.Plan)
    assert_type(run(x), NDArray[Any])
    assert_type(louver.compress_both(w), tuple[louver.SparseTensor, louver.SparseTensor])
    assert_type(louver.gated(s, s), louver.GatedTensor)


def torch_tensors(w: Tensor, x: Tensor, parameter: nn.Parameter, run: louver.Plan) -> None:
    assert_type(louver.prune(w, "2:4"), Tensor)
    assert_type(louver.prune(parameter, "2:4", transposable=True), Tensor)
    s = assert_type(louver.compress(parameter, "2:4"), louver.SparseTensor)
    assert_type(louver.linear(x, s, parameter), Tensor)
    assert_type(louver.matmul(x, s.T), Tensor)
    assert_type(louver.matmul(s, x), Tensor)
    assert_type(s @ x, Tensor)
    assert_type(run(x), Tensor)


def models(model: nn.Module, layer: louver.torch.SparseLinear, x: Tensor) -> None:
    assert_type(louver.torch.prune_(model), Report)
    assert_type(louver.torch.compress_(model), Report)
    assert_type(louver.torch.quantize_(model), Report)
    assert_type(louver.torch.decompress_(model), Report)
    assert_type(louver.torch.verify(model), dict[str, str])
    assert_type(louver.torch.prepare(model, 16), int)
    assert_type(layer.forward(x), Tensor)
    assert_type(layer.weight.dense(), Tensor)
    assert_type(louver.torch.SparseTensor.of(x).to_dense(), Tensor)
