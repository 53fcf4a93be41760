"""Inlines calls of functions that Triton does not inline (`@triton.jit(noinline=True)`)."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, var_operand_def, var_result_def
from xdsl.rewriter import InsertPoint, Rewriter

from louver.frontend.ttir.limits import MAX_OPERATIONS
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
    """Replace calls by the functions' bodies, and remove the functions. Rejects early returns, recursion, and a kernel
    that would have too many operations, before anything is copied.
    """
    functions = {op.sym_name.data: op for op in module.body.ops if isinstance(op, FuncOp)}
    sizes: dict[str, int] = {}
    waiting = {name: [op for op in function.walk() if isinstance(op, CallOp)] for name, function in functions.items()}
    order: list[FuncOp] = []
    while waiting:
        ready = [name for name, calls in waiting.items() if all(_callee(call) in sizes for call in calls)]
        for name in ready:
            calls = waiting.pop(name)
            function = functions[name]
            sizes[name] = sum(1 for _ in function.walk()) + sum(sizes[_callee(call)] for call in calls)
            if sizes[name] > MAX_OPERATIONS:
                raise unsupported(
                    f"a kernel has at most {MAX_OPERATIONS:,} operations with those of the functions that it calls, got "
                    f"{sizes[name]:,}",
                    calls[0] if calls else function,
                    "make loops of what it repeats",
                )
            order.append(function)
        if not ready:
            raise _refused_call(waiting, functions)
    for function in order:
        for call in [op for op in function.walk() if isinstance(op, CallOp)]:
            _inline(call, functions[_callee(call)])
    for function in order:
        if not function.is_public:
            Rewriter.erase_op(function)


def _callee(call: CallOp) -> str:
    return call.callee.root_reference.data


def _refused_call(waiting: dict[str, list[CallOp]], functions: dict[str, FuncOp]) -> Exception:
    """The error for functions that call themselves, or one that the text lacks."""
    for calls in waiting.values():
        for call in calls:
            if _callee(call) not in functions:
                return unsupported(f"a function that is called is in the same text, got no @{_callee(call)}", call)
    # From any of them, calls of others that wait lead into a circle.
    seen: list[str] = []
    name = next(iter(waiting))
    while name not in seen:
        seen.append(name)
        call = next(call for call in waiting[name] if _callee(call) in waiting)
        name = _callee(call)
    circle = next(call for call in waiting[seen[-1]] if _callee(call) == name)
    return unsupported("a function must not call itself", circle, "write a loop")


def _inline(call: CallOp, function: FuncOp) -> None:
    """Replace a call by the function's body, which has no calls."""
    if len(function.body.blocks) != 1:
        raise unsupported(
            "a function with noinline must return once, at its end", call, "return there, or remove noinline"
        )
    block = function.clone().body.block
    end = block.last_op
    types = [each.type for each in block.args], [each.type for each in end.operands] if end is not None else []
    given = [each.type for each in call.arguments], [each.type for each in call.result]
    if not isinstance(end, ReturnOp) or types != given:
        raise unsupported(f"a call has the types of its function, got another {function.name} @{_callee(call)}", call)
    for argument, value in zip(block.args, call.arguments, strict=True):
        argument.replace_all_uses_with(value)
    operations = list(block.ops)[:-1]
    for op in operations:
        op.detach()
    Rewriter.insert_op(operations, InsertPoint.before(call))
    Rewriter.replace_op(call, [], end.srcs)
    end.drop_all_references()
