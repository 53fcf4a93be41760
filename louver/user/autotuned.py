"""Kernels under `triton.autotune` and `triton.heuristics`, launched with sparse arguments.

Hooks are called on copies for questions about a call that must not change its arguments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from louver.formats.dynamo import opaque
from louver.formats.tensor import SparseTensor
from louver.runtime.adapters import make_wait
from louver.runtime.device import device
from louver.user.arguments import Call, canonical, plain
from louver.user.compiled import Wanted, find, needs_of, target_of
from louver.user.config_outcomes import Refused, explain_candidates, is_refusal
from louver.user.decorated_call import Given
from louver.user.decorators import Candidate, Layers
from louver.user.dense import launch_decorated
from louver.user.descriptor import TensorDescriptor
from louver.user.device_and_stream import refuse_capture
from louver.user.explanation import Explanation
from louver.user.hints import Hints
from louver.user.jit_kernel import Grid, JitKernel, computes, grid_sizes
from louver.user.launched_calls import LaunchedCall, LaunchedCalls
from louver.user.snapshot import DeviceSnapshot, HostSnapshot
from louver.user.source import KernelSource

if TYPE_CHECKING:
    from louver.emulator import Report
    from louver.user.launch import Ready


def rehearsed(candidate: Candidate) -> Candidate:
    """The candidate after its config's hook. The caller's arrays and descriptors do not change."""
    if candidate.hook is None:
        return candidate
    named = {name: _copy(value) for name, value in candidate.named.items()}
    blocks = dict(named)
    candidate.hook(named)
    args = tuple(_changed(value, blocks[name]) for name, value in zip(candidate.named, candidate.args, strict=False))
    kwargs = {name: _changed(value, blocks[name]) for name, value in candidate.kwargs.items() if name in blocks}
    return replace(candidate, args=args, kwargs=candidate.kwargs | kwargs)


def _copy(value: Any) -> Any:
    """A writable copy of an array, or of a descriptor with its array. Other values are returned unchanged."""
    if hasattr(value, "block_shape"):
        return _over(value, _copy(value.base))
    if isinstance(value, SparseTensor):
        return value
    for make in ("clone", "copy"):
        if callable(getattr(value, make, None)) and hasattr(value, "shape"):
            return getattr(value, make)()
    return value


def _changed(value: Any, copied: Any) -> Any:
    """The caller's descriptor with the block shape from the hook; other arguments unchanged."""
    return _over(copied, value.base) if hasattr(value, "block_shape") else value


def _over(descriptor: Any, base: Any) -> Any:
    """A copy of a descriptor over another array. Triton's own checks its base, which may be sparse, when it is made."""
    if isinstance(descriptor, TensorDescriptor):
        return replace(descriptor, base=base)
    made = copy(descriptor)
    made.base = base
    return made


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """A candidate that Louver accepts. sizes: of its grid. ready: its launch."""

    candidate: Candidate
    call: Call
    sizes: tuple[int, ...]
    ready: Ready


@opaque
class AutotunedKernel(JitKernel):
    """A kernel with decorators, see `louver.jit`. Threads may share it. A call on a GPU takes the fastest accepted
    config. Configs are timed once for each value of the `key` arguments, types, and patterns and shapes of sparse
    arguments. Without a GPU the first accepted config is taken. A repeated call does not call the user's heuristics and
    pruning functions. `prepare` times with the call's own arrays and restores their contents from a copy.

    best_config: the `triton.Config` of the last call that repeats no earlier one; None before, and without autotuning.
    """

    def __init__(self, source: KernelSource, hints: Hints, layers: Layers) -> None:
        super().__init__(source, hints)
        self._layers = layers
        self._choices: dict[Hashable, Any] = {}
        self._hooked = LaunchedCalls()
        self._lock = threading.Lock()
        self._never: set[str] = set()
        self.best_config: Any = None

    def _first(self, grid: Grid, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = self._given(args, kwargs)
        if self._is_tritons_own(given):
            launch_decorated(self._source.name, self._layers, self._hints.updated(given.options), grid, given)
            return
        given = self._completed(given)
        if given.ordinal is None:
            self._on_host(grid, given, self._interpreted)
            return
        if self._is_empty(grid, given):
            return
        _wait(given)
        reads = self._source.reads
        attempt = self._chosen(grid, given, send=True)
        if attempt is None:
            return
        attempt.ready.launch()
        self.best_config = attempt.candidate.config
        recent = LaunchedCall.of(
            attempt.ready.launch, attempt.sizes, attempt.call, reads, given.ordinal, attempt.ready.page
        )
        if attempt.candidate.hook is None:
            self._recent.keep(args, kwargs, recent)
        else:
            # The hook runs before each launch and may change descriptors, so the key has the hook's results.
            self._hooked.keep(attempt.candidate.args, {**attempt.candidate.kwargs, **given.options}, recent)

    def _prepare(self, grid: Grid, *args: Any, **kwargs: Any) -> None:
        given = self._given(args, kwargs)
        if given.ordinal is None:
            raise ValueError("prepare needs arrays on a GPU: move them there")
        ordinal, given = given.ordinal, self._completed(given)
        if self._is_empty(grid, given):
            return
        # Timed launches and hooks write to the arrays, so their contents are restored.
        writes = self._layers.hooked or self._remembered(given) is None
        if writes:
            refuse_capture(self._source.name, "tuned", given.stream)
        _wait(given)
        with closing(DeviceSnapshot(given.arrays.values() if writes else (), ordinal, given.stream)) as kept:
            try:
                self._chosen(grid, given, send=False)
            finally:
                kept.restore()

    def _emulate(self, grid: Grid, *args: Any, **kwargs: Any) -> Report:
        given = self._completed(self._given(args, kwargs))
        if given.ordinal is not None:
            raise ValueError("the emulator takes arrays in host memory, got arrays on a GPU")
        return self._on_host(grid, given, self._emulated)

    def _explain(self, grid: Grid | None, *args: Any, **kwargs: Any) -> Explanation:
        """How a call runs: its config, and the outcome of the others."""
        given = self._completed(self._given(args, kwargs))

        def explained(candidate: Candidate) -> Explanation:
            call, hints = self._bound(rehearsed(candidate), given)
            return self._explained(call, hints, grid_sizes(grid, call.given))

        return explain_candidates(self._candidates(given), self._remembered(given), explained)

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Given:
        return Given.of(self._source.name, self._parameters, args, kwargs)

    def _completed(self, given: Given) -> Given:
        """The call with the values of heuristics above `triton.autotune`."""
        self._layers.check_conflicts({**given.named, **given.options})
        completed = replace(given, kwargs=self._layers.outer(given.args, given.kwargs))
        self._layers.check_conflicts(completed.named)
        return completed

    def _is_tritons_own(self, given: Given) -> bool:
        kinds = {array.kind for array in given.arrays.values()}
        return given.ordinal is not None and not given.sparse and kinds == {"torch"}

    def _candidates(self, given: Given) -> list[Candidate]:
        layers = self._layers
        configs = layers.configs(given.args, given.kwargs)
        return [layers.candidate(config, given.args, given.kwargs) for config in configs]

    def _is_empty(self, grid: Grid, given: Given) -> bool:
        """Whether the grid has no program, by the first config before any pruning. Nothing is timed then."""
        layers = self._layers
        first = None if layers.tuner is None else layers.tuner.configs[0]
        call, _ = self._bound(layers.candidate(first, given.args, given.kwargs), given)
        return 0 in grid_sizes(grid, call.given)

    def _bound(self, candidate: Candidate, given: Given) -> tuple[Call, Hints]:
        """The call of the kernel beneath. Warps given to `louver.jit` precede those of configs."""
        more = dict(given.options)
        if candidate.warps is not None and self._hints.warps is None:
            more["num_warps"] = candidate.warps
        return self._call(candidate.args, {**candidate.kwargs, **more})

    def _typical(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        given = self._completed(self._given(args, kwargs))
        return self._bound(self._candidates(given)[0], given)[0]

    def _on_host(self, grid: Grid, given: Given, run: Callable[[Call, Hints, tuple[int, ...]], T]) -> T:
        """Run the first candidate that is not rejected. The others leave no trace in the arrays."""
        candidates = self._candidates(given)
        kept = HostSnapshot(given.arrays.values() if len(candidates) > 1 else ())
        refused = Refused()
        for candidate in candidates:
            try:
                candidate.run_hook()
                call, hints = self._bound(candidate, given)
                result = run(call, hints, grid_sizes(grid, call.given))
                self.best_config = candidate.config
                return result
            except Exception as error:
                refused.add(candidate, error)
                kept.restore()
        raise refused.error

    def _chosen(self, grid: Grid, given: Given, *, send: bool) -> Attempt | None:
        """The candidate to launch, after its hook. None for a repeated call, which is already launched if `send`."""
        candidate = self._remembered(given)
        if candidate is not None:
            try:
                candidate.run_hook()
                if send and candidate.hook is not None and self._sent(grid, candidate, given):
                    return None
                return self._attempt(candidate, grid, given)
            except Exception as error:
                if self._layers.count == 1 or not is_refusal(error):
                    raise
        return self._choose(grid, given, candidate)

    def _sent(self, grid: Grid, candidate: Candidate, given: Given) -> bool:
        """Launch a known call again. False if it is not known."""
        found = self._hooked.find(candidate.args, {**candidate.kwargs, **given.options})
        if found is None or not (grid == found.grid or computes(grid, found)):
            return False
        found.launch(given.stream)
        return True

    def _attempt(self, candidate: Candidate, grid: Grid, given: Given) -> Attempt:
        """The candidate, ready to be launched. Raises as `louver.user.launch.ready`."""
        call, hints = self._bound(candidate, given)
        return self._ready(candidate, call, hints, grid_sizes(grid, call.given), given)

    def _ready(self, candidate: Candidate, call: Call, hints: Hints, sizes: tuple[int, ...], given: Given) -> Attempt:
        from louver.user.launch import ready

        assert given.ordinal is not None
        return Attempt(candidate, call, sizes, ready(self._source, hints, call, sizes, given.ordinal, given.stream))

    def _remembered(self, given: Given) -> Candidate | None:
        """The candidate chosen for such a call, or the only candidate."""
        layers = self._layers
        if layers.count == 1:
            return self._candidates(given)[0]
        config = self._choices.get(self._key(given))
        return None if config is None else layers.candidate(config, given.args, given.kwargs)

    def _choose(self, grid: Grid, given: Given, refused: Candidate | None) -> Attempt:
        """Try all candidates and time those left. refused: an earlier choice that does not fit this call."""
        from louver.user.timed_choice import Choice

        refuse_capture(self._source.name, "tuned", given.stream)
        with self._lock:
            now = self._remembered(given)
            if now is not None and (refused is None or now.config is not refused.config):
                # Another thread has chosen meanwhile.
                now.run_hook()
                return self._attempt(now, grid, given)
            with closing(Choice(self._layers.tuner, given)) as choice:
                best = choice.fastest(self._attempts(grid, given))
            self._choices[self._key(given)] = best.candidate.config
            return best

    def _attempts(self, grid: Grid, given: Given) -> list[Attempt]:
        """The accepted candidates, one for each kernel. Raises the first one's error if none is accepted."""
        candidates = self._candidates(given)
        found, refused = self._tried(candidates, grid, given, frozenset(self._never))
        if not found and not refused:
            # Try all again, to get the error.
            found, refused = self._tried(candidates, grid, given, frozenset())
        if not found:
            raise refused.error
        return found

    def _tried(
        self, candidates: Sequence[Candidate], grid: Grid, given: Given, without: frozenset[str]
    ) -> tuple[list[Attempt], Refused]:
        """Accepted and rejected candidates, up to one that decides. without: keys of kernels that the compiler rejected before."""
        found: list[Attempt] = []
        refused = Refused()
        assert given.ordinal is not None
        target, sm_count = target_of(given.ordinal), device(given.ordinal).sm_count
        for candidate in candidates:
            if found and found[-1].ready.decided:
                break
            if any(other.candidate.same(candidate, other.ready.product) for other in found):
                continue
            wanted = None
            try:
                candidate.run_hook()
                call, hints = self._bound(candidate, given)
                sizes = grid_sizes(grid, call.given)
                wanted = Wanted.of(self._source, hints, call, "bulk", target, sizes, sm_count)
                if wanted.key not in without:
                    found.append(self._ready(candidate, call, hints, sizes, given))
            except Exception as error:
                refused.add(candidate, error)
                if wanted is not None and find(wanted, given.ordinal) is None and needs_of(wanted) is None:
                    self._never.add(wanted.key)
        return found, refused

    def _key(self, given: Given) -> Hashable:
        """The key of a choice: Triton's key, and everything else that determines the kernels."""
        named = given.named
        keys: Sequence[str] = self._layers.tuner.keys
        constants = [each.name for each in self._parameters if each.constexpr and each.name in named]
        return (
            tuple(plain(named[name]) for name in keys if name in named and name not in given.sparse),
            tuple((name, array.element.name) for name, array in given.arrays.items()),
            tuple((name, str(s.pattern), s.dtype.name, tuple(s.shape)) for name, s in given.sparse.items()),
            tuple((name, str(canonical(plain(named[name])))) for name in constants),
            tuple(given.options.items()),
            given.ordinal,
        )


def _wait(given: Given) -> None:
    for array in given.arrays.values():
        make_wait(array, given.stream)
