"""Products whose sparse weights come as descriptors that the host makes."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def rows_of_experts(x, w, y, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    expert = tl.program_id(1)
    m = tl.arange(0, TM)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    total = tl.zeros((TM, TN), tl.float32)
    for first in range(0, K, TK):
        a = tl.load(x + m[:, None] * K + first + k[None, :])
        b = w.load([expert * N + tl.program_id(0) * TN, first])
        total += tl.dot(a, tl.trans(b))
    tl.store(y + (expert * TM + m[:, None]) * N + n[None, :], total)


@triton.jit
def rows_by_pointers(x, w, y, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    m = tl.arange(0, TM)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    total = tl.zeros((TM, TN), tl.float32)
    for first in range(0, K, TK):
        a = tl.load(x + m[:, None] * K + first + k[None, :])
        b = tl.load(w + n[:, None] * K + first + k[None, :])
        total += tl.dot(a, tl.trans(b))
    tl.store(y + m[:, None] * N + n[None, :], total)


@triton.jit
def gated_sequences(x, gate, up, y, tokens, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """SwiGLU of a batch of sequences whose layers share both weights. The tile becomes a block of the batch before it is rounded."""
    tiles_m = tl.cdiv(tokens, BM)
    tile_m = tl.program_id(0) % tiles_m
    tile_n = tl.program_id(0) // tiles_m
    sequence = tl.program_id(1)
    of_gate = tl.zeros((BM, BN), tl.float32)
    of_up = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        a = tl.reshape(x.load([sequence, tile_m * BM, first]), [BM, BK])
        of_gate = tl.dot(a, tl.trans(gate.load([tile_n * BN, first])), acc=of_gate)
        of_up = tl.dot(a, tl.trans(up.load([tile_n * BN, first])), acc=of_up)
    made = tl.reshape(of_gate * tl.sigmoid(of_gate) * of_up, [1, BM, BN])
    y.store([sequence, tile_m * BM, tile_n * BN], made.to(y.dtype))
