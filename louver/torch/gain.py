"""µs of a dense layer beside its sparse one: timed on a GPU in turns, at each number of tokens, or predicted for one."""

from __future__ import annotations

import copy
import functools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.advice.formats import OUTPUTS, Format
from louver.advice.rates import known, predicted
from louver.formats.dtypes import element_type
from louver.formats.pattern import has_kernels
from louver.library.prepare import Preparation, compile_together
from louver.torch.joined import JoinedWeight
from louver.torch.linear import SparseLinear, SparseWeight
from louver.torch.placed import averaged
from louver.torch.ready import preparations
from louver.torch.stacks import SparseStack, dense_product

MEMORY: Final = 160_000_000
"""Bytes of dense weights that a side goes through, so that no weight is read from the L2 cache of a GPU."""

MOST_COPIES: Final = 8

GRAPH_SECONDS: Final = 2e-3
"""Least time of a timed run of replays."""

TURNS: Final = 5


@dataclass(frozen=True, slots=True)
class Gain:
    """µs of a product by tokens: of the dense layer, and of the sparse one."""

    dense_us: dict[int, float]
    sparse_us: dict[int, float]

    @property
    def relative(self) -> float:
        """The time of the sparse layer over that of the dense one, the mean over the numbers of tokens."""
        return statistics.fmean(self.sparse_us[n] / self.dense_us[n] for n in self.dense_us)

    def agreed(self, weight: Tensor) -> Gain:
        """The mean over the ranks that a weight lies on, which all of them then decide by."""
        sides = (self.dense_us, self.sparse_us)
        means = [averaged(list(side.values()), weight) for side in sides]
        return Gain(*(dict(zip(side, mean, strict=True)) for side, mean in zip(sides, means, strict=True)))


def element_of(weight: Tensor) -> str:
    """The element type in which products with a weight will run: f32 on the CPU is taken to become bf16 on a GPU."""
    name = element_type(weight.dtype).name
    return "bf16" if name == "f32" and not weight.is_cuda else name


def predict(weight: Tensor, pattern: str, tokens: Sequence[int], device: str) -> Gain | None:
    """The predicted times of a layer on a GPU. None for a stack, for a GPU or an element type without rates, and for a
    pattern that GPUs do not multiply in the type: 1:2 is that of f32.
    """
    there, element = known().get(device), element_of(weight)
    multiplied = element in OUTPUTS and has_kernels("products", pattern, element)
    if there is None or weight.ndim != 2 or not multiplied:
        return None
    (rows, columns), formats = weight.shape, (Format(element), Format(element, pattern))
    dense, sparse = ({n: predicted(each, rows, n, columns, there).us for n in tokens} for each in formats)
    return Gain(dense, sparse)


class Apart(nn.Module):
    """Dense layers of one input."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [layer(x) for layer in self.layers]


class Together(nn.Module):
    """Sparse layers of one input as one product: the gated one of two layers by turns, or that of all rows."""

    def __init__(self, layers: Sequence[SparseLinear], by_turns: bool, activation: str | None) -> None:
        super().__init__()
        self.joint = JoinedWeight.joined([layer.weight for layer in layers], by_turns=by_turns)
        self.biases, self.activation = [layer.bias for layer in layers], activation

    def forward(self, x: Tensor) -> Any:
        joint = self.joint
        return joint.gated(x, self.biases, self.activation) if joint.by_turns else joint.products(x, self.biases)


def measure(dense: nn.Module, sparse: nn.Module, tokens: Sequence[int]) -> Gain:
    """Times layers dense and sparse on the device of their weights, by replays of CUDA graphs, the median of some turns.
    Compiles the kernels of these numbers of tokens. Raises RuntimeError during a capture.

    dense, sparse: layers, or `Apart` and `Together`.
    """
    weight: Any = next(module for module in sparse.modules() if isinstance(module, SparseWeight))
    device, kind, columns = weight.device, weight.dense_dtype or weight.dtype, weight.shape[1]
    nbytes = weight.shape[0] * columns * kind.itemsize
    count = min(MOST_COPIES, -(-MEMORY // nbytes))
    compile_together(_products(sparse, weight, tokens))
    sides = [[_copied(layer, device) for _ in range(count)] for layer in (dense, sparse)]
    found: list[dict[int, float]] = [{}, {}]
    with torch.cuda.device(device), torch.no_grad():
        for n in tokens:
            x = torch.randn(n, columns, device=device, dtype=kind)
            graphs = [_captured(layers, x) for layers in sides]
            times: list[list[float]] = [[], []]
            for _ in range(TURNS):
                for side, replay in enumerate(graphs):
                    times[side].append(_seconds(replay))
            for side in (0, 1):
                found[side][n] = statistics.median(times[side]) / count * 1e6
    return Gain(*found)


def measure_training(dense: nn.Module, sparse: SparseLinear, tokens: int) -> Gain:
    """The same for forward and backward of a layer: with gradients of x, of the weight, and of a bias."""
    weight = sparse.weight
    with torch.cuda.device(weight.device):
        sides = [_trained(copy.deepcopy(layer), weight, tokens) for layer in (dense, sparse)]
        times = [[_seconds(replay) for replay in sides] for _ in range(TURNS)]
    dense_us, sparse_us = ({tokens: statistics.median(each) * 1e6} for each in zip(*times, strict=True))
    return Gain(dense_us, sparse_us)


def _trained(layer: nn.Module, weight: SparseWeight, tokens: int) -> Callable[[], Any]:
    """The replay of a graph of one step of a layer."""
    x, g = (torch.randn(tokens, each, device=weight.device, dtype=weight.dtype) for each in reversed(weight.shape))
    wanted = [x.requires_grad_(), *(each for each in layer.parameters() if each.requires_grad)]
    return _replay(lambda: torch.autograd.grad(layer(x), wanted, g))


def _products(sparse: nn.Module, weight: SparseWeight, tokens: Sequence[int]) -> Iterator[Preparation]:
    """The products of `measure`."""
    if isinstance(sparse, Together):
        bias, activation = any(each is not None for each in sparse.biases), sparse.activation
        return preparations(weight, tokens, bias=bias, activation=activation, gated=sparse.joint.by_turns)
    return preparations(weight, tokens, bias=getattr(sparse, "bias", None) is not None)


def _copied(layer: nn.Module, device: torch.device) -> Any:
    """A copy for timing. A bias that is not loaded yet is 0."""
    made = copy.deepcopy(layer).requires_grad_(False)
    for name, parameter in list(made.named_parameters(recurse=False)):
        if parameter.is_meta:
            setattr(made, name, nn.Parameter(torch.zeros_like(parameter, device=device), False))
    return made


def measure_stack(weight: Tensor, sparse: SparseStack, tokens: Sequence[int], chosen: int) -> Gain:
    """Times the product of a stack, dense and sparse, as `measure` does, but without graphs: the host knows the numbers of
    tokens of each expert. Each token goes to `chosen` experts at random.

    weight: [experts, out, in].
    """
    device, experts = weight.device, weight.shape[0]
    found: list[dict[int, float]] = [{}, {}]
    with torch.cuda.device(device), torch.no_grad():
        for n in tokens:
            ids = torch.rand(n, experts, device=device).topk(min(chosen, experts)).indices.reshape(-1).sort().values
            ends = torch.searchsorted(ids, torch.arange(experts, device=device), right=True)
            x = torch.randn(len(ids), weight.shape[2], device=device, dtype=weight.dtype)
            sides = (
                functools.partial(dense_product, x, weight.mT, ends),
                functools.partial(sparse.multiply, x, ends.cpu(), n),
            )
            times: list[list[float]] = [[], []]
            for _ in range(TURNS):
                for side, run in enumerate(sides):
                    times[side].append(_seconds(run))
            for side in (0, 1):
                found[side][n] = statistics.median(times[side]) * 1e6
    return Gain(*found)


def _captured(layers: Sequence[nn.Module], x: torch.Tensor) -> Callable[[], Any]:
    """The replay of a graph that runs each layer once."""
    return _replay(lambda: [layer(x) for layer in layers])


def _replay(run: Callable[[], Any]) -> Callable[[], Any]:
    """The replay of a graph of some work, which is done once before."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()

    def replay(kept: object = run) -> None:
        # The graph has the addresses of tensors, not the tensors: those of the work live as long as this function.
        graph.replay()

    return replay


def _seconds(replay: Callable[[], Any]) -> float:
    """Seconds of a replay, over as many as last `GRAPH_SECONDS`, after one that is not timed."""
    replay()
    once = _timed(replay, 1)
    return _timed(replay, max(1, int(GRAPH_SECONDS / max(once, 1e-6))))


def _timed(replay: Callable[[], Any], count: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3 / count
