"""Inlines calls of functions that Triton does not inline (`@triton.jit(noinline=True)`)."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, var_operand_def, var_result_def
from xdsl.rewriter import InsertPoint, Rewriter

from louver.ir.refusal import unsupported
from louver.ir.tile import FuncOp, ReturnOp


@irdl_op_definition
class CallOp(IRDLOperation):
    """A call of another function of the module."""

    name = "tt.call"
    callee = prop_def(SymbolRefAttr)
    arguments = var_operand_def()
    result = var_result_def()
    assembly_format = "$callee `(` $arguments `)` attr-dict `:` functional-type($arguments, $result)"


def inline_calls(module: ModuleOp) -> None:
    """Replace calls by the functions' bodies, and remove the functions. Rejects early returns and recursion."""
    functions = {op.sym_name.data: op for op in module.body.ops if isinstance(op, FuncOp) and not op.is_public}
    inlined: dict[CallOp, tuple[str, ...]] = {}
    while calls := [op for op in module.walk() if isinstance(op, CallOp) and _kernel_of(op).is_public]:
        for call in calls:
            name = call.callee.root_reference.data
            above = inlined.pop(call, ())
            if name in above:
                raise unsupported("a function must not call itself", call, "write a loop")
            made = _inline(call, functions[name])
            inlined.update(dict.fromkeys(made, (*above, name)))
    for function in functions.values():
        Rewriter.erase_op(function)


def _kernel_of(call: CallOp) -> FuncOp:
    parent = call.parent_op()
    while not isinstance(parent, FuncOp):
        assert parent is not None
        parent = parent.parent_op()
    return parent


def _inline(call: CallOp, function: FuncOp) -> list[CallOp]:
    """Replace a call by the function's body. Returns the calls in this body."""
    if len(function.body.blocks) != 1:
        raise unsupported(
            "a function with noinline must return once, at its end", call, "return there, or remove noinline"
        )
    block = function.clone().body.block
    end = block.last_op
    assert isinstance(end, ReturnOp)
    made = [op for op in block.walk() if isinstance(op, CallOp)]
    for argument, given in zip(block.args, call.arguments, strict=True):
        argument.replace_all_uses_with(given)
    operations = list(block.ops)[:-1]
    for op in operations:
        op.detach()
    Rewriter.insert_op(operations, InsertPoint.before(call))
    Rewriter.replace_op(call, [], end.srcs)
    end.drop_all_references()
    return made
