"""Draws a kernel over time, from its schedule: who fills each slot of the ring, multiplies, stores and waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from louver.compile.check.timeline import Lengths, Span, timeline
from louver.compile.compiled import CompiledProduct
from louver.compile.plan.schedule import Schedule
from louver.ir.sched import ops
from louver.measure.report.svg import EDGE, INK, MUTED, PAPER, Drawing, text_width

WIDTH, LEFT, RIGHT = 1040, 192, 16
ROW, GAP, HEAD = 24, 5, 60

COPY, PRODUCTS, STORE, WAIT = ("#bcd7f0", "#d3ecc8"), ("#2f6fae", "#3f8a3a"), ("#c9691c", "#a8487f"), "#e9ecef"
"""Colours of copies, products and stores, alternating between tiles; of waits."""

TILES = 2
"""Drawn tiles of each warpgroup."""

BEYOND = 4
"""Drawn steps of a tile after the steps that first fill the ring."""


@dataclass(frozen=True, slots=True)
class Life:
    """A kernel for sizes M, N, K on a GPU with this number of SMs."""

    product: CompiledProduct
    sizes: tuple[int, int, int]
    sms: int

    @property
    def schedule(self) -> Schedule:
        return self.product.schedule

    @property
    def kernel(self) -> ops.KernelOp:
        (kernel,) = (op for op in self.product.sched.body.block.ops if isinstance(op, ops.KernelOp))
        return kernel

    @property
    def steps(self) -> int:
        """K steps of a tile."""
        return -(-self.sizes[2] // self.schedule.tile.k)

    @property
    def drawn(self) -> int:
        """Drawn K steps of a tile."""
        return min(self.steps, self.schedule.ring.stages + BEYOND)

    @property
    def tiles(self) -> int:
        """Tiles of the output, rounded up to whole clusters."""
        tile, order = self.schedule.tile, self.schedule.order
        m = -(-self.sizes[0] // (tile.m * order.cluster)) * order.cluster
        return m * -(-self.sizes[1] // tile.n)

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage: the operands of a K step."""
        rings = [op for op in self.kernel.body.block.ops if isinstance(op, ops.RingOp)]
        return sum(op.bytes.value.data for op in rings if op.sym_name.data != "d")

    @property
    def spans(self) -> list[Span]:
        """The actions of the first CTA, with their times."""
        return timeline(self.kernel, [self.drawn] * TILES)


def draw_schedule(life: Life) -> str:
    """The picture as SVG. Raises ProtocolError for wrong barriers, which no compiled kernel has."""
    spans = life.spans
    rows = list(_rows(life, spans))
    height = HEAD + len(rows) * (ROW + GAP) + 92
    facts = _facts(life)
    drawing = Drawing(WIDTH, height, f"A kernel's life in time: {facts[0]}", " ".join([*facts, *_notes(life)]))
    drawing.text(16, 25, f"A CTA in time: {facts[0]}", size=15, bold=True)
    for line, text in enumerate(facts[1:]):
        drawing.text(16, 45 + 17 * line, text, fill=MUTED)
    scale = (WIDTH - LEFT - RIGHT) / max(span.end for span in spans)
    for number, (label, bars) in enumerate(rows):
        y = HEAD + number * (ROW + GAP)
        drawing.text(LEFT - 10, y + 16, label, anchor="end", room=LEFT - 16)
        drawing.box(LEFT, y, WIDTH - LEFT - RIGHT, ROW, "#f7f8f9")
        for bar in bars:
            _draw_bar(drawing, bar, y, scale)
    _legend(drawing, HEAD + len(rows) * (ROW + GAP) + 8, _notes(life))
    return drawing.svg()


@dataclass(frozen=True, slots=True)
class _Bar:
    begin: float
    end: float
    fill: str
    label: str = ""
    light: bool = False


def _facts(life: Life) -> list[str]:
    nest, schedule, (m, n, k) = life.product.nest, life.schedule, life.sizes
    tile, ring = schedule.tile, schedule.ring
    at_once = schedule.occupancy.ctas * life.sms
    ctas = min(life.tiles, at_once // schedule.order.cluster * schedule.order.cluster)
    most = -(-life.tiles // ctas)
    stages = "1 stage" if ring.stages == 1 else f"{ring.stages} stages"
    return [
        f"{nest.a.element} {nest.a.pattern}, tile {tile.m}×{tile.n}×{tile.k}, {stages} of {life.stage_bytes:,} bytes",
        f"M, N, K = {m:,}, {n:,}, {k:,}: {life.tiles:,} tiles, {ctas:,} CTAs on {life.sms} SMs, {most} tiles a CTA at most, "
        f"{life.steps} K steps a tile, {schedule.roles.threads} threads, {schedule.store.way} stores",
    ]


def _notes(life: Life) -> list[str]:
    lengths = Lengths()
    cut = f"{life.drawn} of {life.steps} steps" if life.drawn < life.steps else f"{life.steps} steps"
    return [
        f"Drawn: {cut} of each tile; numbers are K steps. The order is that of the kernel's own barriers, as the protocol check runs them.",
        f"Lengths are assumed, not measured: a step's products {lengths.products:g}, its copies {lengths.copies:g} and "
        f"{lengths.latency:g} until they are seen, a store {lengths.store:g}.",
    ]


def _rows(life: Life, spans: Sequence[Span]) -> Iterator[tuple[str, list[_Bar]]]:
    holders = sorted({(span.role, span.warpgroup) for span in spans})
    copiers = [role.sym_name.data for role in life.kernel.roles if role.single is not None]
    for role in copiers:
        yield f"{role}, one thread", list(_holder_bars(spans, (role, 0), copies=True))
    for stage in range(life.schedule.ring.stages):
        yield f"stage {stage}", list(_stage_bars(spans, stage))
    for role, warpgroup in holders:
        if role not in copiers:
            rows = 64 * life.schedule.blocks
            part = f"rows {rows * warpgroup}–{rows * (warpgroup + 1) - 1}"
            yield f"consumer {warpgroup}, {part}", list(_holder_bars(spans, (role, warpgroup)))


def _holder_bars(spans: Sequence[Span], holder: tuple[str, int], *, copies: bool = False) -> Iterator[_Bar]:
    """The bars of a role's actions. Products run asynchronously, so their bars hide the role's waits."""
    own = [span for span in spans if (span.role, span.warpgroup) == holder]
    yield from (_Bar(span.begin, span.end, WAIT) for span in own if span.kind == "wait")
    if copies:
        yield from (_Bar(*_filled(each), COPY[each[0].tile % 2], str(each[0].step)) for each in _copies(own))
    for span in own:
        if span.kind == "products":
            yield _Bar(span.begin, span.end, PRODUCTS[span.tile % 2], str(span.step), light=True)
        elif span.kind == "store":
            yield _Bar(span.begin, span.end, STORE[span.tile % 2], "store", light=True)


def _copies(spans: Sequence[Span]) -> list[list[Span]]:
    """The copies of each step."""
    copies = sorted((span for span in spans if span.kind == "copy"), key=lambda span: (span.tile, span.step))
    return [list(each) for _, each in groupby(copies, key=lambda span: (span.tile, span.step))]


def _filled(copies: Sequence[Span]) -> tuple[float, float]:
    return min(span.begin for span in copies), max(span.end for span in copies) - Lengths().latency


def _stage_bars(spans: Sequence[Span], stage: int) -> Iterator[_Bar]:
    """A stage from the start of its copies to its release by the last warpgroup: filling, full, being read."""
    own = [span for span in spans if span.stage == stage]
    for copies in _copies(own):
        key = copies[0].tile, copies[0].step
        same = [span for span in own if (span.tile, span.step) == key]
        seen = max(span.end for span in copies)
        released = max([span.end for span in same if span.kind == "release"], default=seen)
        read = min([span.begin for span in same if span.kind == "products"], default=released)
        yield _Bar(min(span.begin for span in copies), seen, COPY[key[0] % 2])
        yield _Bar(seen, read, "#8fb4d9" if key[0] % 2 == 0 else "#9ecb8f")
        yield _Bar(read, released, PRODUCTS[key[0] % 2], str(key[1]), light=True)


def _draw_bar(drawing: Drawing, bar: _Bar, y: float, scale: float) -> None:
    x, width = LEFT + bar.begin * scale, (bar.end - bar.begin) * scale
    if width <= 0:
        return
    drawing.box(x, y + 1, width, ROW - 2, bar.fill, edge=PAPER, thick=0.8)
    if bar.label and text_width(bar.label, 11) <= width - 2:
        drawing.text(x + width / 2, y + 16, bar.label, size=11, anchor="middle", fill=PAPER if bar.light else INK)


def _legend(drawing: Drawing, y: float, notes: Sequence[str]) -> None:
    x = 16.0
    drawing.line(16, y, WIDTH - RIGHT, y, EDGE)
    for label, fills in (
        ("copies fill", COPY),
        ("full", ("#8fb4d9", "#9ecb8f")),
        ("products read", PRODUCTS),
        ("epilogue and store", STORE),
        ("waits", (WAIT,)),
    ):
        for fill in fills:
            drawing.box(x, y + 12, 14, 14, fill, edge=EDGE, thick=0.5)
            x += 16
        drawing.text(x + 4, y + 23, label)
        x += 18 + text_width(label, 12)
    drawing.text(x + 4, y + 23, "two colours: tiles by turns", fill=MUTED)
    for line, text in enumerate(notes):
        drawing.text(16, y + 47 + 17 * line, text, fill=MUTED, room=WIDTH - 32)
