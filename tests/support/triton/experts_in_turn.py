"""Programs that go through all experts, and through the tiles of each: a `while` loop bounds the number of the tile."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def experts_in_turn(
    x, w, y, sizes, E: tl.constexpr, N, K, SE, SK, PROGRAMS,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACROSS: tl.constexpr, ROWS_FIRST: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Rows of x by expert, times the expert's w: [K, N] if ACROSS, else [N, K]. SE and SK: strides of w."""
    tile = tl.program_id(0)
    end = 0
    done = 0
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    for e in range(E):
        start = end
        size = tl.load(sizes + e)
        end = start + size
        if size > 0:
            tiles_m = tl.cdiv(size, BM)
            tiles_n = tl.cdiv(N, BN)
            tiles = tiles_m * tiles_n
            while tile >= done and tile < done + tiles:
                own = tile - done
                if ROWS_FIRST:
                    m, n = own % tiles_m, own // tiles_m
                else:
                    m, n = own // tiles_n, own % tiles_n
                rows = m * BM + rm
                columns = n * BN + rn
                x_at = x + (start + rows)[:, None] * K + rk[None, :]
                if ACROSS:
                    w_at = w + e.to(tl.int64) * SE + rk[:, None] * SK + columns[None, :]
                else:
                    w_at = w + e.to(tl.int64) * SE + columns[None, :] * SK + rk[:, None]
                total = tl.zeros((BM, BN), tl.float32)
                for k in range(0, K, BK):
                    a = tl.load(x_at, mask=(rows < size)[:, None] & (rk < K - k)[None, :], other=0.0)
                    if MASKED:
                        b = tl.load(w_at, mask=(rk < K - k)[:, None] & (columns < N)[None, :], other=0.0)
                    else:
                        b = tl.load(w_at)
                    total += tl.dot(a, b)
                    x_at += BK
                    w_at += BK * SK if ACROSS else BK
                inside = (rows < size)[:, None] & (columns < N)[None, :]
                tl.store(y + (start + rows)[:, None] * N + columns[None, :], total, mask=inside)
                tile += PROGRAMS
            done += tiles


@triton.jit
def gradients_in_turn(
    dy, w, dx, sizes, E: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PROGRAMS,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Rows of dy by expert, times the expert's w [N, K]: it sums along N, and a condition bounds a tile's columns."""
    tile = tl.program_id(0)
    end = 0
    done = 0
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    for e in range(E):
        start = end
        size = tl.load(sizes + e)
        end = start + size
        if size > 0:
            tiles_m = tl.cdiv(size, BM)
            tiles = tiles_m * tl.cdiv(K, BK)
            while tile >= done and tile < done + tiles:
                own = tile - done
                rows = own % tiles_m * BM + rm
                columns = own // tiles_m * BK + rk
                dy_at = dy + (start + rows)[:, None] * N + rn[None, :]
                w_at = w + (e * N + rn)[:, None] * K + columns[None, :]
                total = tl.zeros((BM, BK), tl.float32)
                for _ in range(0, N, BN):
                    total += tl.dot(tl.load(dy_at, mask=(rows < size)[:, None]), tl.load(w_at))
                    dy_at += BN
                    w_at += BN * K
                tl.store(dx + (start + rows)[:, None] * K + columns[None, :], total, mask=(rows < size)[:, None])
                tile += PROGRAMS
            done += tiles
