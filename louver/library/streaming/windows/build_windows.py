"""Kernels on windows.

A CTA processes one tile at a time: the rows of a window, and some whole groups. The steps are:

1. Each thread reads the columns of its blocks from top to bottom, and writes their keys to shared memory.
2. For each column, a thread counts the keys of the group that come before the column's key.
3. The threads read the tile again, divided by blocks to prune, or by stored columns to compress. A kernel that takes
   given columns has this step alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from louver.library.streaming.lanes import assemble
from louver.library.streaming.place import Corner
from louver.library.streaming.windows.frame import Frame, Share
from louver.library.streaming.windows.keys import (
    NEGATIVE,
    NONZERO,
    check_list,
    find_slot,
    keys,
    load_list,
    negative_zeros,
    store_list,
)
from louver.library.streaming.windows.record import Windowed
from louver.ptx.module import Kernel, Reg


def build(record: Windowed) -> Kernel:
    """The kernel of a record. Its grid is columns of tiles × at most the number of windows."""
    frame = Frame(record)
    {"prune": _prune, "check": _check, "compress": _compress, "dense": _expand, "take": _take}[record.kind](frame)
    return frame.k.finish()


def _prune(frame: Frame) -> None:
    k, record = frame.k, frame.record
    with frame.tiles() as corner:
        _leave_keys(frame, corner)
        _leave_flags(frame, corner)
        share = frame.blocks()
        source, out = (frame.dense(name, corner, share, share.number) for name in ("source", "out"))
        last = record.columns - record.block_columns
        flags = frame.read(frame.flags, k.min(share.number, last), record.block_columns)
        masks = [k.sub(0, flag) for flag in flags]
        whole = _side_by_side(frame, masks) if len(masks) > 1 else masks[0]

        def work() -> None:
            blocks = source.load(record.at_once)
            out.store([[k.and_(word, whole) for word in words] for words in blocks])

        frame.down(corner, share, (source, out), work)


def _check(frame: Frame) -> None:
    k, record = frame.k, frame.record
    n, m, threads = record.pattern.n, record.pattern.m, record.threads
    # Each thread counts the groups with one number of non-zeros, or with several numbers if M is above the number of
    # threads.
    tally = [k.mov(0) for _ in range(0, m, threads)]
    with frame.tiles() as corner:
        _leave_keys(frame, corner)
        window = k.mad_lo(corner.entry, frame.args["row_tiles"], corner.number)
        with frame.each(record.groups) as group:
            count = k.mov(0)
            with frame.group(frame.keys, group) as (_, some):
                for key in some:
                    k.add(count, k.selp(1, 0, k.setp("ge", "u32", key, NONZERO)), into=count)
            frame.write(frame.flags, group, [count])
            place = k.mad_lo(frame.column_tile, record.groups, group)
            wrong = k.setp("ne" if record.exact else "gt", "u32", count, n)
            offends = k.and_pred(wrong, k.setp("lt", "u32", place, frame.groups))
            frame.list_group(k.mad_wide(window, frame.groups, k.widen_u64(place)), count, offends)
        frame.meet()
        group = k.mov(0)
        with k.loop(uniform=True) as groups:
            (count,) = frame.read(frame.flags, group)
            for number, counted in enumerate(tally):
                own = k.setp("eq", "u32", count, k.add(frame.thread, number * threads + 1))
                k.add(counted, k.selp(1, 0, own), into=counted)
            k.add(group, 1, into=group)
            groups.repeat_if(k.setp("lt", "u32", group, record.groups))
        if record.type.floating:
            with frame.each(record.columns) as column:
                (key,) = frame.read(frame.keys, column)
                (count,) = frame.read(frame.flags, frame.in_group(column)[0])
                within = k.setp("le", "u32", count, n)
                with k.if_(k.and_pred(within, k.setp("eq", "u32", key, NEGATIVE))):
                    _count_lost(frame, corner, column, k.setp("ge", "u32", _rank(frame, column, key), n))
        frame.meet()
    frame.leave_found()
    for number, counted in enumerate(tally):
        place = k.add(frame.thread, number * threads)
        with k.if_(k.setp("lt", "u32", place, m)):
            frame.leave_count(place, counted)


def _compress(frame: Frame) -> None:
    k, record = frame.k, frame.record
    with frame.tiles() as corner:
        _leave_keys(frame, corner)
        _leave_flags(frame, corner)
        with frame.each(record.columns) as column:
            (flag,) = frame.read(frame.flags, column)
            with k.if_(k.setp("ne", "u32", flag, 0)):
                frame.write(frame.lists, _slot(frame, column), [column])
        frame.meet()
        store_list(frame, corner)
        with frame.shares(record.slots) as share:
            (column,) = frame.read(frame.lists, share.number)
            _move_column(frame, corner, share, column)
    frame.leave_found()


def _take(frame: Frame) -> None:
    k, record = frame.k, frame.record
    with frame.tiles() as corner:
        load_list(frame, corner)
        frame.meet()
        with frame.shares(record.slots) as share:
            (index,) = frame.read(frame.lists, share.number)
            group, _ = frame.divided(share.number, record.pattern.n)
            _move_column(frame, corner, share, k.mad_lo(group, record.pattern.m, index))
        frame.meet()


def _move_column(frame: Frame, corner: Corner, share: Share, column: Reg) -> None:
    """Store a column of the dense tile as that of a share's slot."""
    source = frame.dense("source", corner, share, column, alone=True)
    values = frame.values(corner, share, share.number, share.busy)
    frame.down(corner, share, (source, values), lambda: values.store(source.load(frame.record.at_once)))


def _expand(frame: Frame) -> None:
    k, record = frame.k, frame.record
    with frame.tiles() as corner:
        load_list(frame, corner)
        frame.meet()
        check_list(frame)
        share = frame.blocks()
        out = frame.dense("out", corner, share, share.number)
        first = k.min(share.number, record.columns - record.block_columns)
        found = [find_slot(frame, k.add(first, number)) for number in range(record.block_columns)]
        values = [frame.values(corner, share, slot, there) for slot, there in found]

        def work() -> None:
            loaded = [each.load(record.at_once) for each in values]
            if len(loaded) > 1:
                rows = zip(*([word for (word,) in column] for column in loaded), strict=True)
                loaded = [[[_side_by_side(frame, row)] for row in rows]]
            out.store(loaded[0])

        frame.down(corner, share, (*values, out), work)
        frame.meet()
    frame.leave_found()


# --- common parts ------------------------------------------------------------------------------------------------------
def _leave_keys(frame: Frame, corner: Corner) -> None:
    """Write the keys of all columns of a tile to shared memory, followed by a barrier."""
    record, share = frame.record, frame.blocks()
    source, found = frame.dense("source", corner, share, share.number), keys(frame.k, record)

    def work() -> None:
        for words in source.load(record.at_once):
            found.take(words)

    frame.down(corner, share, (source,), work)
    frame.write(frame.keys, share.number, found.found(), guard=share.busy)
    frame.meet()


def _leave_flags(frame: Frame, corner: Corner) -> None:
    """Write a flag for each column of a tile to shared memory: 1 if it is kept, else 0. A barrier follows.

    A kernel without a norm records non-zero columns that are not kept, and counts their -0.0.
    """
    k, n = frame.k, frame.record.pattern.n
    with frame.each(frame.record.columns) as column:
        (key,) = frame.read(frame.keys, column)
        kept = k.setp("lt", "u32", _rank(frame, column, key), n)
        flag = k.selp(1, 0, kept)
        frame.write(frame.flags, column, [flag])
        if frame.record.norm is None:
            with k.if_(kept, negated=True):
                k.or_(frame.found.violated, k.selp(1, 0, k.setp("eq", "u32", key, NONZERO)), into=frame.found.violated)
                if frame.record.type.floating:
                    _count_lost(frame, corner, column, k.setp("eq", "u32", key, NEGATIVE))
    frame.meet()


def _rank(frame: Frame, column: Reg, key: Reg) -> Reg:
    """The number of columns of the group that come before a column with this key: those with larger keys, and lower
    columns with equal keys.
    """
    k = frame.k
    group, place = frame.in_group(column)
    count, above = k.mov(0), k.add(key, 1)
    with frame.group(frame.keys, group) as (first, some):
        ahead = k.sub(place, first)
        for number, other in enumerate(some):
            least = k.selp(key, above, k.setp("gt", "s32", ahead, number))
            k.add(count, k.selp(1, 0, k.setp("ge", "u32", other, least)), into=count)
    return count


def _slot(frame: Frame, column: Reg) -> Reg:
    """The slot of a kept column of the tile."""
    k = frame.k
    group, place = frame.in_group(column)
    slot = k.mul_lo(group, frame.record.pattern.n)
    with frame.group(frame.flags, group) as (first, some):
        ahead = k.sub(place, first)
        for number, flag in enumerate(some):
            k.add(slot, k.selp(flag, 0, k.setp("gt", "s32", ahead, number)), into=slot)
    return slot


def _side_by_side(frame: Frame, elements: Sequence[Reg]) -> Reg:
    """A word with the elements of several registers, one element each."""
    (word,) = assemble(frame.k, [[(each, byte) for each in elements for byte in range(frame.record.type.bytes)]])
    return word


def _count_lost(frame: Frame, corner: Corner, column: Reg, there: Reg) -> None:
    """Add the -0.0 of a column of the tile to the lost ones, if the condition `there` holds."""
    k, record = frame.k, frame.record
    with k.if_(there):
        share = Share(column, 0, there, record.at_once * record.block_rows)
        source = frame.dense("source", corner, share, column, alone=True)

        def work() -> None:
            for words in source.load(record.at_once):
                for word in words:
                    k.add(frame.found.lost, k.count_ones(negative_zeros(frame.lanes, word)), into=frame.found.lost)

        frame.down(corner, share, (source,), work)
