"""The Triton source of a random kernel."""

from __future__ import annotations

from dataclasses import dataclass, field

from support.triton.drawn.choices import DESCRIPTORS, Choices

NAME = "drawn_kernel"

GROUP = 3
"""Rows of tiles in a group."""

CHAIN = 16
"""Columns of the matrix that a chained dot multiplies the sums with."""

TYPES = {
    "f16": "tl.float16",
    "bf16": "tl.bfloat16",
    "f32": "tl.float32",
    "e4m3": "tl.float8e4nv",
    "e5m2": "tl.float8e5",
    "s8": "tl.int8",
}


def source(c: Choices) -> str:
    """The kernel as text, with its imports."""
    return _Writer(c).write()


@dataclass
class _Writer:
    c: Choices
    lines: list[str] = field(default_factory=list[str])
    indent: int = 1

    def say(self, *lines: str) -> None:
        self.lines += ["    " * self.indent + line for line in lines]

    @property
    def sparse(self) -> tuple[str, ...]:
        return ("w", "v") if self.c.inside == "second sparse" else ("w",)

    @property
    def beside(self) -> tuple[str, ...]:
        """Operands [P, K] that are multiplied with x."""
        return (*self.sparse, "u") if self.c.inside == "second dense" else self.sparse

    def write(self) -> str:
        c = self.c
        self._program()
        sizes = [f"{name}: tl.constexpr" if c.constant else name for name in ("P", "Q", "K")]
        strides = ["sw_p", "sw_k", "sx_q", "sx_k", "su_p", "sy_p", "sy_q", "b_w", "b_x", "b_y"]
        arrays = ["y", *self.beside, "x", *arrays_of(c)]
        tiles = [f"{name}: tl.constexpr" for name in ("BP", "BQ", "BK")]
        arguments = ", ".join([*arrays, *sizes, *strides, *tiles])
        head = ["import triton", "import triton.language as tl", "", "", "@triton.jit", f"def {NAME}({arguments}):"]
        return "\n".join([*head, *self.lines, ""])

    # The tile.

    def _program(self) -> None:
        c = self.c
        if c.batch:
            self.say(f"entry = tl.program_id({'xyz'.index(c.batch)})")
            if not c.shared:
                self.say(*(f"{name} += entry * b_w" for name in self.sparse))
            self.say("x += entry * b_x", "y += entry * b_y")
        if c.numbering == "grid":
            axes = (0, 1) if c.side == "left" else (1, 0)
            self.say(f"tile_p = tl.program_id({axes[0]})", f"tile_q = tl.program_id({axes[1]})")
            self._tile()
            return
        self.say("tiles_p = tl.cdiv(P, BP)", "tiles_q = tl.cdiv(Q, BQ)")
        if c.numbering == "persistent":
            self.say("for tile in range(tl.program_id(0), tiles_p * tiles_q, tl.num_programs(0)):")
            self.indent += 1
            self.say("tile_p = tile // tiles_q", "tile_q = tile % tiles_q")
        elif c.numbering == "rows":
            self.say("tile = tl.program_id(0)", "tile_p = tile // tiles_q", "tile_q = tile % tiles_q")
        else:
            self.say(
                "tile = tl.program_id(0)",
                f"first = tile // ({GROUP} * tiles_q) * {GROUP}",
                f"height = min(tiles_p - first, {GROUP})",
                f"tile_p = first + tile % ({GROUP} * tiles_q) % height",
                f"tile_q = tile % ({GROUP} * tiles_q) // height",
            )
        self._tile()

    def _tile(self) -> None:
        c = self.c
        self.say(
            "p0 = tile_p * BP",
            "q0 = tile_q * BQ",
            "p = p0 + tl.arange(0, BP)",
            "q = q0 + tl.arange(0, BQ)",
            "kk = tl.arange(0, BK)",
        )
        if c.x_feed == "gathered":
            self.say("row = tl.load(rows + q, mask=q < Q, other=0)")
        if c.x_feed == "wrapped":
            self.say("q_in = q % Q")
        if c.w_feed == "wrapped":
            self.say("p_in = p % P")
        self._sums()
        self._finish()

    # Operands.

    def _k_first(self, name: str) -> bool:
        return (name == "x") == (self.c.side == "left")

    def _feed(self, name: str) -> str:
        return self.c.x_feed if name == "x" else "masked" if name == "u" else self.c.w_feed

    def _strides(self, name: str) -> tuple[str, str]:
        if name == "u":
            return "su_p", "1"
        return ("sx_q", "sx_k") if name == "x" else ("sw_p", "sw_k")

    def _rows(self, name: str) -> bool:
        """Whether K is contiguous."""
        return name == "u" or (self.c.x_rows if name == "x" else self.c.w_stored == "rows")

    def _own(self, name: str, *, address: bool) -> str:
        """The index along P or Q."""
        feed = self._feed(name)
        if name == "x":
            return {"gathered": "row", "wrapped": "q_in"}.get(feed, "q") if address else "q"
        return "p_in" if feed == "wrapped" and address else "p"

    def _address(self, name: str, k: str) -> str:
        own_stride, k_stride = self._strides(name)
        own, k_first = self._own(name, address=True), self._k_first(name)
        left, right = ("[None, :]", "[:, None]") if k_first else ("[:, None]", "[None, :]")
        return f"{name} + {own}{left} * {own_stride} + ({k}){right} * {k_stride}"

    def _mask(self, name: str, k: str, *, masked: bool) -> str:
        k_first, size = self._k_first(name), "Q" if name == "x" else "P"
        left, right = ("[None, :]", "[:, None]") if k_first else ("[:, None]", "[None, :]")
        terms: list[str] = []
        if self._feed(name) != "wrapped":
            terms.append(f"({self._own(name, address=False)}{left} < {size})")
        if masked:
            terms.append(f"(({k}){right} < K)")
        elif self.c.fixed and (name == "x" or not self.c.splits):
            terms.append(f"(kk{right} < K)")
        other = "0" if (self.c.x if name == "x" else self.c.w) == "s8" else "0.0"
        return f", mask={' & '.join(terms)}, other={other}" if terms else ""

    def _begin(self, name: str, start: str) -> None:
        """Before the loop."""
        feed, own, size = self._feed(name), "q" if name == "x" else "p", "Q" if name == "x" else "P"
        own_stride, k_stride = self._strides(name)
        tile = "BQ" if name == "x" else "BP"
        if feed == "made":
            if self._rows(name):
                self.say(f"{name}_at = tl.make_tensor_descriptor({name}, [{size}, K], [{own_stride}, 1], [{tile}, BK])")
            else:
                self.say(f"{name}_at = tl.make_tensor_descriptor({name}, [K, {size}], [{k_stride}, 1], [BK, {tile}])")
        elif feed == "moved":
            self.say(f"{name}_at = {self._address(name, f'{start} + kk')}")
        elif feed == "blocks":
            shape, strides, at, block = [size, "K"], [own_stride, k_stride], [f"{own}0", start], [tile, "BK"]
            order = (1, 0) if self._rows(name) else (0, 1)
            if self._k_first(name):
                shape, strides, at, block, order = shape[::-1], strides[::-1], at[::-1], block[::-1], order[::-1]
            texts = [f"({', '.join(part)})" for part in (shape, strides, at, block)]
            self.say(f"{name}_at = tl.make_block_ptr({name}, {', '.join(texts)}, {order})")

    def _load(self, name: str, k0: str, *, masked: bool) -> None:
        feed, own = self._feed(name), "q" if name == "x" else "p"
        k = f"{k0} + kk"
        if feed in DESCRIPTORS:
            place = f"[{own}0, {k0}]" if self._rows(name) else f"[{k0}, {own}0]"
            turned = ".T" if self._rows(name) == self._k_first(name) else ""
            handle = f"{name}_at" if feed == "made" else name
            loaded = f"{handle}.load({place}){turned}"
        elif feed == "blocks":
            loaded = f'tl.load({name}_at, boundary_check=(0, 1), padding_option="zero")'
        else:
            address = f"{name}_at" if feed == "moved" else self._address(name, k)
            loaded = f"tl.load({address}{self._mask(name, k, masked=masked)})"
        self.say(f"{name}_tile = {loaded}")
        self._make(name, k, masked=masked)

    def _make(self, name: str, k: str, *, masked: bool) -> None:
        """The lines by which the loop changes a tile before its dot. Some versions of Triton widen a tile by a number: it is cast back."""
        c = self.c
        if name in self.sparse and c.cast == "w":
            self.say(f"{name}_tile = {name}_tile.to({TYPES[c.x]})")
        if name == "w" and c.made == "doubled w":
            self.say("w_tile = (w_tile * 2).to(w_tile.dtype)")
        if name != "x":
            return
        if c.made == "doubled x":
            self.say("x_tile = (x_tile * 2).to(x_tile.dtype)")
        elif c.made == "relu x":
            zero = "0" if c.x == "s8" else "0.0"
            self.say(f"x_tile = tl.maximum(x_tile, {zero}).to(x_tile.dtype)")
        elif c.made == "masked x":
            side = "[:, None]" if self._k_first("x") else "[None, :]"
            mask = f", mask={k} < K, other=0" if masked else ""
            self.say(
                f"keep_tile = tl.load(keep + {k}{mask}){side}",
                "x_tile = tl.where(keep_tile > 0, x_tile, tl.zeros_like(x_tile))",
            )
        if c.cast == "x":
            self.say(f"x_tile = x_tile.to({TYPES[c.w]})")

    # The loop.

    def _sums(self) -> None:
        c = self.c
        shape = "(BP, BQ)" if c.side == "left" else "(BQ, BP)"
        kind = "tl.int32" if c.integer and c.inside != "scale" else "tl.float32"
        for name in self.beside:
            self.say(f"sum_{name} = tl.zeros({shape}, dtype={kind})")
        if c.inside == "sums of x":
            self.say("sum_x = tl.zeros((BQ,), dtype=tl.float32)")
        masked, operands = not c.whole, (*self.beside, "x")
        start = "tl.program_id(2) * BK" if self.c.splits else "0"
        parts = "tl.num_programs(2)" if self.c.splits else "1"
        by = f"BK * {parts}" if self.c.splits else "BK"
        for name in operands:
            self._begin(name, start)
        match c.loop:
            case "once":
                self._step("0", "0", masked=masked, by=None)
            case "steps":
                first = "tl.program_id(2)" if self.c.splits else "0"
                self.say(f"for i in range({first}, tl.cdiv(K, BK), {parts}):")
                self._inner("i * BK", "i", masked=masked, by=by)
            case "elements":
                self.say("for k0 in range(0, K, BK):")
                self._inner("k0", "k0 // BK", masked=masked, by=by)
            case "while":
                self.say(f"k0 = {start}", "while k0 < K:")
                self._inner("k0", "k0 // BK", masked=masked, by=by)
                self.indent += 1
                self.say(f"k0 += {by}")
                self.indent -= 1
            case _:
                self.say("for i in range(K // BK):")
                self._inner("i * BK", "i", masked=False, by=by)
                self.say("if K % BK != 0:")
                self._inner("K // BK * BK", "K // BK", masked=True, by=None)

    def _inner(self, k0: str, i: str, *, masked: bool, by: str | None) -> None:
        self.indent += 1
        self._step(k0, i, masked=masked, by=by)
        self.indent -= 1

    def _step(self, k0: str, i: str, *, masked: bool, by: str | None) -> None:
        c = self.c
        for name in ("x", *self.beside):
            self._load(name, k0, masked=masked)
        if c.inside == "sums of x":
            self.say(f"sum_x += tl.sum(x_tile.to(tl.float32), axis={0 if self._k_first('x') else 1})")
        for name in self.beside:
            self._dot(name, i)
        if c.inside == "atomic":
            self.say("tl.atomic_add(count, 1)")
        for name in ("x", *self.beside):
            if by is not None and self._feed(name) == "moved":
                self.say(f"{name}_at += {by} * {self._strides(name)[1]}")
            elif by is not None and self._feed(name) == "blocks":
                self.say(f"{name}_at = tl.advance({name}_at, ({f'{by}, 0' if self._k_first(name) else f'0, {by}'}))")

    def _dot(self, name: str, i: str) -> None:
        c = self.c
        left, right = (f"{name}_tile", "x_tile") if c.side == "left" else ("x_tile", f"{name}_tile")
        kind = ", out_dtype=tl.int32" if c.integer else ""
        if c.inside.startswith("scale"):
            part = f"tl.dot({left}, {right}{kind})" + (".to(tl.float32)" if c.integer else "")
            self.say(f"sum_{name} += {part} * {self._scale(i)}")
        elif c.into:
            self.say(f"sum_{name} = tl.dot({left}, {right}, sum_{name}{kind})")
        else:
            self.say(f"sum_{name} += tl.dot({left}, {right}{kind})")

    def _scale(self, i: str) -> str:
        if self.c.inside == "scale":
            return f"tl.load(scales + {i})"
        own = self.c.inside[-1]
        return f"tl.load(scales + {own} * tl.cdiv(K, BK) + {i}, mask={own} < {own.upper()}, other=0.0){self._at(own)}"

    def _at(self, own: str) -> str:
        """A vector along P or Q as the sums have it."""
        return "[:, None]" if (own == "p") == (self.c.side == "left") else "[None, :]"

    # After it.

    def _finish(self) -> None:
        c = self.c
        p, q = f"p{self._at('p')}", f"q{self._at('q')}"
        self.say(f"inside = ({p} < P) & ({q} < Q)", "total = sum_w.to(tl.float32)")
        if c.inside == "second sparse":
            self.say("other_total = sum_v.to(tl.float32)", "total = total * tl.sigmoid(total) * other_total")
        elif c.inside == "second dense":
            self.say("total += sum_u.to(tl.float32)")
        elif c.inside == "sums of x":
            self.say(f"total += sum_x{self._at('q')}")
        for name in c.epilogue:
            self._epilogue(name, p, q)
        if c.after:
            self._after()
        self._store(p, q)

    def _epilogue(self, name: str, p: str, q: str) -> None:
        kind, _, own = name.partition(" ")
        if own:
            load = f"tl.load({kind}_{own} + {own}, mask={own} < {own.upper()}, other=0.0).to(tl.float32)"
            self.say(f"total {'*' if kind == 'scale' else '+'}= {load}{self._at(own)}")
            return
        match name:
            case "alpha":
                self.say("total = total * alpha")
            case "residual":
                self.say(f"total += tl.load(residual + {p} * Q + {q}, mask=inside, other=0.0).to(tl.float32)")
            case "relu":
                self.say("total = tl.maximum(total, 0.0)")
            case "silu":
                self.say("total = total * tl.sigmoid(total)")
            case _:
                self.say("total = tl.minimum(tl.maximum(total, -4.0), 4.0)")

    def _after(self) -> None:
        c = self.c
        q_axis = 1 if c.side == "left" else 0
        match c.after:
            case "sums":
                entry = " + entry * P" if c.batch else ""
                self.say(
                    f"kept = tl.sum(tl.where(inside, total, 0.0), axis={q_axis})",
                    f"tl.atomic_add(sums + p{entry}, kept, mask=p < P)",
                )
            case "largest":
                self.say(
                    f'kept = tl.max(tl.where(inside, total, -float("inf")), axis={q_axis})',
                    "tl.store(largest + tile_q * P + p, kept, mask=p < P)",
                )
            case _:
                self.say(f"e = tl.arange(0, {CHAIN})", "low = tl.where(inside, total, 0.0).to(tl.bfloat16)")
                if c.side == "left":
                    self.say(
                        f"turn = tl.load(chain + q[:, None] * {CHAIN} + e[None, :], mask=q[:, None] < Q, other=0.0)",
                        f"tl.atomic_add(chained + p[:, None] * {CHAIN} + e[None, :], tl.dot(low, turn), mask=p[:, None] < P)",
                    )
                else:
                    self.say(
                        f"turn = tl.load(chain + q[None, :] * {CHAIN} + e[:, None], mask=q[None, :] < Q, other=0.0)",
                        f"tl.atomic_add(chained + p[None, :] * {CHAIN} + e[:, None], tl.dot(turn, low), mask=p[None, :] < P)",
                    )

    def _store(self, p: str, q: str) -> None:
        c = self.c
        self.say(f"result = total.to({TYPES[c.out]})")
        if c.store == "made":
            if c.y_turned:
                self.say("y_to = tl.make_tensor_descriptor(y, [Q, P], [sy_q, 1], [BQ, BP])")
            else:
                self.say("y_to = tl.make_tensor_descriptor(y, [P, Q], [sy_p, 1], [BP, BQ])")
            turned = ".T" if c.y_turned == (c.side == "left") else ""
            self.say(f"y_to.store({'[q0, p0]' if c.y_turned else '[p0, q0]'}, result{turned})")
            return
        if c.store == "scattered":
            self.say("to = tl.load(places + q, mask=q < Q, other=0)")
            q = f"to{self._at('q')}"
        place = f"y + {p} * sy_p + {q} * sy_q"
        if c.store == "atomic":
            self.say(f"tl.atomic_add({place}, result, mask=inside)")
        else:
            self.say(f"tl.store({place}, result, mask=inside)")


def arrays_of(c: Choices) -> tuple[str, ...]:
    """Arguments beside the operands, the output and the sizes, each of which is once."""
    found: list[str] = []
    if c.x_feed == "gathered":
        found.append("rows")
    if c.made == "masked x":
        found.append("keep")
    if c.inside.startswith("scale"):
        found.append("scales")
    if c.inside == "atomic":
        found.append("count")
    for name in c.epilogue:
        kind, _, own = name.partition(" ")
        if own:
            found.append(f"{kind}_{own}")
        elif name in ("alpha", "residual"):
            found.append(name)
    if c.after:
        found += ["chain", "chained"] if c.after == "chain" else [c.after]
    if c.store == "scattered":
        found.append("places")
    return tuple(dict.fromkeys(found))
