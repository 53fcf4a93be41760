"""A `Product` on the hardware: one warpgroup, operands placed by plain loads and stores, one product after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from support.ptxas import assemble_text, header
from support.warpgroup import Product

THREADS = 128
PARAMETERS = ("u64", "u32", "u64", "u64", "u64", "u32")
"""Image of shared memory, its bytes, A's registers, the metadata words, the accumulators, scale-d of the first product."""


def kernel_text(name: str, product: Product) -> str:
    """The entry that runs all steps of `product`; A's registers and metadata are [steps, count, 128] words."""
    count = product.form.d_fragment.registers
    kind = "f32" if product.form.d == "f32" else "b32"
    d = ", ".join(f"%d{i}" for i in range(count))
    return "\n".join(
        [
            f".visible .entry {name}(.param .u64 image, .param .u32 bytes, .param .u64 regs, .param .u64 meta,",
            ".param .u64 acc, .param .u32 scale) .reqntid 128",
            "{",
            ".reg .b32 %thread, %base, %end, %at, %one, %v<4>, %a<4>, %m;",
            f".reg .{kind} %d<{count}>;",
            ".reg .b64 %image, %regs, %meta, %acc, %wide, %start, %da, %db;",
            ".reg .pred %more, %scale, %always;",
            "mov.u32 %thread, %tid.x;",
            "mov.u32 %base, smem;",
            "ld.param.u64 %image, [image];",
            "ld.param.u32 %end, [bytes];",
            "shl.b32 %at, %thread, 4;",
            "setp.ge.u32 %more, %at, %end;",
            "@%more bra COPIED;",
            "COPY:",
            "cvt.u64.u32 %wide, %at;",
            "add.u64 %wide, %image, %wide;",
            "ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%wide];",
            "add.u32 %one, %base, %at;",
            "st.shared.v4.b32 [%one], {%v0, %v1, %v2, %v3};",
            f"add.u32 %at, %at, {16 * THREADS};",
            "setp.lt.u32 %more, %at, %end;",
            "@%more bra COPY;",
            "COPIED:",
            "fence.proxy.async;",
            "bar.sync 0;",
            "cvt.u64.u32 %start, %base;",
            "shr.u64 %start, %start, 4;",
            "mul.wide.u32 %wide, %thread, 4;",
            *(f"ld.param.u64 %{p}, [{p}];\nadd.u64 %{p}, %{p}, %wide;" for p in ("regs", "meta", "acc")),
            "ld.param.u32 %one, [scale];",
            "setp.ne.u32 %scale, %one, 0;",
            "setp.eq.u32 %always, %thread, %thread;",
            *(f"ld.global.{kind} %d{i}, [%acc+{4 * THREADS * i}];" for i in range(count)),
            *(_step(index, product, d) for index in range(len(product.steps))),
            *(f"st.global.{kind} [%acc+{4 * THREADS * i}], %d{i};" for i in range(count)),
            "ret;",
            "}\n",
        ]
    )


def _step(index: int, product: Product, d: str) -> str:
    form, a, b_desc, meta = product.steps[index]
    lines = [f"add.u64 %db, %start, {b_desc};"]
    if form.a_source == "shared":
        lines.append(f"add.u64 %da, %start, {a};")
        operand = "%da"
    else:
        lines += [f"ld.global.b32 %a{r}, [%regs+{4 * THREADS * (4 * index + r)}];" for r in range(4)]
        operand = "{%a0, %a1, %a2, %a3}"
    if meta is not None:
        lines.append(f"ld.global.b32 %m, [%meta+{4 * THREADS * index}];")
    words = ["%m"] if meta is not None else []
    scale = "%always" if index else "%scale"
    return "\n".join(
        [
            *lines,
            "wgmma.fence.sync.aligned;",
            f"{form.text(f'{{{d}}}', operand, '%db', *words, scale)};",
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
        ]
    )


def module_text(products: Sequence[Product]) -> str:
    """All products' kernels, k0, k1, …, in one module."""
    kernels = "".join(kernel_text(f"k{i}", product) for i, product in enumerate(products))
    return header((8, 4), "sm_90a") + ".extern .shared .align 1024 .b8 smem[];\n" + kernels


def run_on_gpu(products: Sequence[Product], starts: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """The accumulators of each product, [64, n], from the given ones; None runs with scale-d false over garbage."""
    cubin, _ = assemble_text(module_text(products), "sm_90a")
    return [_launch(cubin, f"k{i}", product, d) for i, (product, d) in enumerate(zip(products, starts, strict=True))]


def _launch(cubin: bytes, name: str, product: Product, d: np.ndarray | None) -> np.ndarray:
    from louver.runtime.memory import DeviceBuffer
    from louver.runtime.module import ArgumentPack, load

    image = np.pad(product.window, (0, -product.window.size % 16))
    kernel = load(cubin, name, dynamic_shared=image.size, threads=THREADS)
    arrays = (image, *_words(product), product.registers(d))
    buffers = [DeviceBuffer(max(array.nbytes, 16)) for array in arrays]
    for buffer, array in zip(buffers, arrays, strict=True):
        if array.size:
            buffer.write(np.ascontiguousarray(array))
    arguments = ArgumentPack(PARAMETERS)
    smem, regs, meta, acc = buffers
    arguments.bind(smem.address, image.size, regs.address, meta.address, acc.address, int(d is not None))
    kernel.launch(1, arguments)
    out = acc.read().view(np.uint32).reshape(-1, THREADS)
    return product.matrix(out)


def _words(product: Product) -> tuple[np.ndarray, np.ndarray]:
    """A's registers, uint32 [steps, 4, 128], and the metadata, uint32 [steps, 128]; empty where there are none."""
    empty = np.empty(0, np.uint32)
    registers = product.form.a_source == "registers"
    a = np.stack([step[1] for step in product.steps]) if registers else empty
    return a, np.stack([step[3] for step in product.steps]) if product.form.sparse else empty
