"""count-elements: changes loops over steps of K to loops over elements of K.

`for k in range(0, tl.cdiv(K, BK))` with `k * BK` in its body becomes `for k in range(0, K, BK)`. The iterations are the
same, and k is the first element of each.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.integers import constant_integer, steps_of
from louver.compile.rewrite.insert import integer


def count_elements(module: ModuleOp) -> None:
    """Rewrite these loops in place. Other loops do not change."""
    for loop in [op for op in module.walk() if isinstance(op, scf.ForOp)]:
        if constant_integer(loop.lb) == 0 and constant_integer(loop.step) == 1:
            _rewrite(loop)


def _rewrite(loop: scf.ForOp) -> None:
    number = loop.body.block.args[0]
    products: list[arith.MuliOp] = []
    steps: set[int | None] = set()
    for use in number.uses:
        op = use.operation
        if not isinstance(op, arith.MuliOp):
            return
        products.append(op)
        steps.add(constant_integer(op.operands[1 - use.index]))
    step = steps.pop() if len(steps) == 1 else None
    end = None if step is None else _end(loop, step)
    if step is None or end is None:
        return
    loop.operands[1] = end
    loop.operands[2] = integer(loop, step, loop.lb.type)
    for product in products:
        Rewriter.replace_op(product, [], [number])


def _end(loop: scf.ForOp, step: int) -> SSAValue | None:
    """The number of elements in all steps of the loop."""
    count = constant_integer(loop.ub)
    if count is not None:
        return integer(loop, count * step, loop.lb.type)
    found = steps_of(loop.ub)
    return found[0] if found is not None and found[1] == step else None
