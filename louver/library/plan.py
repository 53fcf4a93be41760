"""Plans: a product that is fixed for one sparse tensor, and called with little host time."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

from louver.choose.reasons import Reasons, reasons_for
from louver.choose.tile_shapes import column_class
from louver.choose.tuned import Terms
from louver.formats.dtypes import ElementType, check_switch, element_type
from louver.formats.dynamo import opaque
from louver.formats.gated import GatedTensor
from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import Activation
from louver.frontend.problem import Batch, BLayout, Kind, Problem
from louver.library.batch import placed
from louver.library.compiled import find
from louver.library.dense import matrices
from louver.library.execute import run, schedule_for
from louver.library.fused import Given, Target, fuse, given_of, place_name
from louver.library.host import by_reference, usable_device
from louver.library.prepare import batch_of, check_kind, check_target, make_ready, size_range
from louver.library.request import (
    Accumulate,
    Request,
    check_kernel,
    check_sparse,
    default_layout,
    gathers,
    operand_view,
    output_element,
    output_rows_of,
    output_shape,
    problem,
    request,
    turned,
)
from louver.library.state import TensorState
from louver.library.warm import WarmCalls
from louver.runtime.arrays import ArrayView, view
from louver.runtime.device import Device
from louver.runtime.device import device as device_of

if TYPE_CHECKING:
    from louver.formats.kinds import Array

_CHANGING = ("dense_bias", "dense_scale", "c", "alpha", "beta")
"""Options of a plan that its calls may replace."""


@opaque
class Plan:
    """A product of one sparse tensor on one device, made by `louver.plan`. It keeps the tensor, its operand and the
    options.

    problem: what its kernel computes, with the layout of the dense operand and the element types.
    n, batch, activation, batch_invariant, dependent, target: as planned. K is cut as for the planned n, unless a call has more
        tiles.
    device: the device of the arrays; None for the reference path on the host.

    Threads may share a plan. A CUDA graph that captured a call reads the operand and the arrays of the options on each
    replay. Keep the plan, or the sparse tensor and the arrays, as long as the graph. Options that are numbers keep the
    values of the captured call.
    """

    def __init__(
        self,
        s: SparseTensor,
        n: int,
        batch: int,
        solved: Problem,
        given: Given,
        activation: Activation | None,
        place: Device | None,
        batch_invariant: bool,
        dependent: bool,
        form: str | None = None,
    ) -> None:
        self.problem = solved
        self.n = n
        self.batch = batch
        self.activation: Activation | None = activation
        self.device = place
        self.batch_invariant = batch_invariant
        self.dependent = dependent
        self.target = form
        self._s = s
        self._given = given
        self._state = s.derived.of(TensorState)
        self._warm = WarmCalls()

    @property
    def layout(self) -> BLayout:
        """The layout in which the kernel reads the dense operand, in place."""
        return self.problem.b_layout

    def __call__(
        self,
        x: Array,
        out: Array | None = None,
        *,
        dense_bias: Any = None,
        dense_scale: Any = None,
        c: Any = None,
        alpha: float | None = None,
        beta: float | None = None,
    ) -> Array:
        """Compute into `out` and return it. Without `out`, return a new array of x's kind.

        x is on the plan's device, and N may be any number, 0 included:

        | product | shape of x |
        |---|---|
        | linear plan, or x on the left of s | [..., K] |
        | x on the right of s | [K, N] |
        | batch | [..., K, N] |

        A plan for a batch takes a batch of any size but 1.

        x is read in place, even where `louver.matmul` would take less time by a copy. Its rows have unit stride in the
        plan's layout. Its address, row pitch and the distance between entries of a batch are multiples of 16 bytes.

        With `out` nothing is allocated. The work goes to the caller's current stream, and the call waits for nothing.
        It may be captured into a CUDA graph.

        The options replace those of the plan for this call. They must ask for the same epilogue.

        Raises ValueError or TypeError with the broken rule, before anything is launched.
        """
        given = self._given
        if not (dense_bias is None and dense_scale is None and c is None and alpha is None and beta is None):
            changed = zip(_CHANGING, (dense_bias, dense_scale, c, alpha, beta), strict=True)
            given = given._replace(**{name: value for name, value in changed if value is not None})
        y = self._warm.launch(None, x, given, out)
        return self._checked(x, given, out) if y is None else y

    def _checked(self, x: Any, given: Given, out: Any) -> Any:
        solved = self.problem
        element = element_type(solved.out)
        asked = request(
            solved.kind,
            self._s,
            x,
            given,
            self.activation,
            out,
            element,
            solved.accumulate,
            like=solved.epilogue,
            batch_invariant=self.batch_invariant,
        )
        self._check_kind(asked)
        made = asked.made(out)
        if asked.empty:
            return made
        result = view(made) if asked.out is None else asked.out
        self._check_place(asked, result)
        if self.device is None:
            return by_reference(asked, made)
        launched = run(
            self._state,
            asked,
            result,
            n=self.n,
            batch=self.batch,
            dependent=self.dependent,
            in_place=True,
            form=self.target,
        )
        if launched is not None:
            self._warm.keep(None, (x, given, out), asked, result, launched)
        return made

    def _check_kind(self, asked: Request) -> None:
        solved, fused = self.problem, asked.fused
        ordinal = _ordinal(self.device)
        if asked.dense.device != ordinal:
            raise ValueError(
                f"the plan is for arrays on {place_name(ordinal)}, got one on "
                f"{place_name(asked.dense.device)}: make another plan"
            )
        if asked.dense.element.name != solved.b:
            raise ValueError(
                f"the plan is for dense operands of {solved.b}, got {asked.dense.element}: make another plan, with like=x"
            )
        bias = None if solved.bias is None else solved.bias_element
        if (fused.epilogue, fused.bias) != (solved.epilogue, bias):
            raise ValueError(
                f"the plan is for {solved.epilogue} and a bias of {bias}, got options for {fused.epilogue} and a bias of "
                f"{fused.bias}: make another plan"
            )

    def _check_place(self, asked: Request, out: ArrayView) -> None:
        at, planned = placed(asked, out), self.problem.batch
        if at.kind != planned:
            raise ValueError(
                f"the plan is for {_entries_text(planned)}, got {_entries_text(at.kind)}: make another plan, with batch=…"
            )
        if at.in_place is None or at.layout != self.layout:
            raise ValueError(
                f"a plan reads its dense operand in place, {self.layout} with address and row pitch multiples of 16 bytes, "
                f"got shape {list(asked.dense.shape)}, strides {list(asked.dense.strides)} and address "
                f"{asked.dense.address:#x}: pad the rows, or call louver.matmul or linear, which copy"
            )

    def explain(self) -> Reasons:
        """Why the plan's kernel is as it is, for an output whose rows are multiples of 16 bytes: the pattern and who
        promises it, the candidates with predicted times, the instruction. `print` it.

        The kernel's record keeps the reasons of the sizes that it was compiled for, as they were then, in memory and beside
        its cubin. If the plan has other sizes, they are weighed again.

        Raises ValueError for a plan on the host, which has no kernel.
        """
        if self.device is None:
            raise ValueError("a plan on the host runs the reference path, which has no kernel: plan on a GPU")
        m, k = self._s.shape[-2:]
        asked = self.problem, m, column_class(max(self.n, 1)), k, self.device
        terms = Terms(
            batch=self.batch, batch_invariant=self.batch_invariant, dependent=self.dependent, form=self.target
        )
        kernel = find(self.problem, schedule_for(*asked, aligned_output=True, **terms), self.device.ordinal)
        kept = None if kernel is None else kernel.launch.reasons
        sizes = (*asked[1:4], self.batch)
        return kept if kept is not None and kept.sizes == sizes else reasons_for(*asked, aligned_output=True, **terms)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a plan belongs to its process and device, and cannot be copied or pickled: pickle the sparse tensor, and call "
            "louver.plan where it is used"
        )

    def __repr__(self) -> str:
        (m, k), solved = self._s.shape[-2:], self.problem
        place = "the host, by the reference path" if self.device is None else self.device
        return f"Plan({solved.kind} {m}×{k} {solved.a}, n={self.n}, {self.layout}, to {solved.out}, on {place})"


@opaque
def plan(
    kind: Kind,
    s: SparseTensor,
    n: int,
    *,
    bias: Any = None,
    out_dtype: object = None,
    like: Any = None,
    layout: BLayout | None = None,
    dense_bias: Any = None,
    scale: Any = None,
    dense_scale: Any = None,
    c: Any = None,
    out_scale: Any = None,
    alpha: float | None = None,
    beta: float | None = None,
    activation: Activation | None = None,
    accumulate: Accumulate = "auto",
    batch: int | None = None,
    batch_invariant: bool = False,
    dependent: bool = False,
    target: str | None = None,
) -> Plan:
    """Fix operand, problem and kernel of a product, for calls with little host time.

    `p = louver.plan("linear", s, n=256, like=x)`, then `p(x, out=y)`.

    kind: "linear" or "matmul". A matmul is s @ b. If s is [..., K, N] and sparse along K, it is x @ s, a linear product
        of s.mT.
    n: N (tokens, or columns of b) that the kernel is chosen for, 0 or more. Calls may have any N.
    out_dtype: as in `louver.matmul`.
    like: an array like those of the calls. It gives the device, the element type and the layout. Default: the current
        device and the element type of s.
    layout: of the dense operand, "k_major" (row-major tokens [N, K]) or "n_major" (row-major b [K, N]). Only 16-bit
        types and patterns that gather have "n_major"; it is their default for s @ b.
    batch: the number of dense operands, as in `prepare`. Default: as many as `like` or s has. A linear plan with one
        weight treats all tokens as one axis by default; with `batch`, a second stride separates the entries.
    bias, dense_bias, scale, dense_scale, c, out_scale, alpha, beta: as in `louver.matmul`, arrays on the device, for N
    = n (c is [n, out] or [out, n]). Each call reads the arrays again, and may give others.
    activation, accumulate, batch_invariant: as in `louver.matmul`.
    dependent: whether a launch may begin while earlier kernels of its stream end (programmatic dependent launch). It
        reads the weight meanwhile, and waits for those kernels before it touches any other array. No kernel of the
        stream may write the weight's own memory on the device while the plan may run; the caller ensures this. Louver
        writes that memory only in `SparseTensor.update_`, after a wait for the device.
    target: the target whose instructions and limits the kernel keeps to, such as "sm_80" on an H200: to check on one GPU
        what Louver compiles for another. Default: the device's own.

    The call compiles and uploads what calls with aligned and other outputs need. Without a GPU the plan is for arrays
    on the host. It follows the same rules, computes by the reference path, and says so once.

    Raises ValueError or TypeError for arguments that no product has, and RuntimeError while the stream of `like` is
    being captured.
    """
    check_kind(kind, layout)
    kind, s = turned(kind, s)
    check_sparse(s, accumulate)
    check_kernel(s)
    check_switch("batch_invariant", batch_invariant)
    check_switch("dependent", dependent)
    check_target(target)
    n, _ = size_range((n, n))
    example = None if like is None else operand_view(kind, s, like)
    if example is not None:
        output_shape(kind, s, example)
    place = _place_of(s, example)
    dense = s.dtype if example is None else example.element
    chosen = _layout(kind, s, dense, example, layout)
    if batch is None and example is not None and kind == "matmul":
        batch = prod(example.shape[:-2])
    count, entries = batch_of(s, batch)
    given = given_of(bias, dense_bias, scale, dense_scale, c, out_scale, alpha, beta)
    outputs = output_rows_of(s)
    leading = s.shape[:-2] or ((count,) if entries else ())
    shape = (*leading, n, outputs) if kind == "linear" else (*leading, outputs, n)
    columns = (*(leading if entries in ("dense", "both") else ()), n)
    fused = fuse(Target(kind, s, shape, columns, n, _ordinal(place), isinstance(s, GatedTensor)), given, activation)
    element = output_element(out_dtype, s.dtype, dense, fused.epilogue)
    solved = problem(kind, s, dense, chosen, element, fused.bias, fused.epilogue, accumulate, entries)
    if place is not None:
        stream = 0 if example is None else example.stream or 0
        terms = Terms(batch=count, batch_invariant=batch_invariant, dependent=dependent, form=target)
        make_ready(s, (column_class(max(n, 1)),), solved, place, stream, **terms)
    return Plan(s, n, count, solved, given, activation, place, batch_invariant, dependent, target)


def _place_of(s: SparseTensor, example: ArrayView | None) -> Device | None:
    """The device of the plan's arrays; None for the host, if no device is usable."""
    if example is not None and example.device is not None:
        return device_of(example.device)
    found = usable_device(s)
    if found is not None and example is not None:
        raise ValueError("plans are for arrays on a device, got an array on the host as the example: move it there")
    return found


def _ordinal(place: Device | None) -> int | None:
    return None if place is None else place.ordinal


def _layout(
    kind: Kind, s: SparseTensor, dense: ElementType, example: ArrayView | None, layout: BLayout | None
) -> BLayout:
    if kind == "linear" and gathers(s):
        raise ValueError(
            f"a plan reads its operand in place, and products of {s.pattern} gather rows of [K, N], got tokens [N, K]: call "
            "louver.linear or matmul, which turn them, or plan a matmul of the weight [M, K]"
        )
    if layout is not None or example is None or len(example.shape) < 2:
        return layout or default_layout(kind, s, dense)
    found = matrices(example, k_axis=-1 if kind == "linear" else -2).layout
    if found == "copy":
        raise ValueError(
            f"a plan reads its dense operand in place, got an example without unit stride: {list(example.strides)}"
        )
    return found


def _entries_text(entries: Batch | None) -> str:
    own = {"dense": "dense operands", "sparse": "sparse operands", "both": "operands of both kinds"}
    return "single products" if entries is None else f"a batch of {own[entries]}"
