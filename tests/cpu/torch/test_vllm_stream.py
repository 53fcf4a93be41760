"""The dense weights of streams of Louver's arrays and of bitmasks."""

# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver

torch: Any = pytest.importorskip("torch")

from louver.formats.pattern import Pattern
from louver.formats.regular import FormatError
from louver.torch.linear import SparseWeight
from louver.torch.vllm.stream import Stored, dense_weights, of_files, of_layers
from support.bitmasks import parts_of, two_of_four

CPU = torch.device("cpu")


def pruned(rows: int, columns: int, pattern: str, dtype: Any = None) -> Any:
    generator = torch.Generator().manual_seed(rows * columns)
    return louver.prune(torch.randn(rows, columns, generator=generator).to(dtype or torch.bfloat16), pattern)


def parts(name: str, w: Any, pattern: str) -> dict[str, Any]:
    made = SparseWeight.of(w, pattern)
    return {f"{name}.values": made.values.detach(), f"{name}.indices": made.indices.detach()}


def dense(arrays: dict[str, Any], stored: dict[str, Stored], dtype: Any = None) -> dict[str, Any]:
    return dict(dense_weights(list(arrays.items()), stored, CPU, dtype or torch.bfloat16))


@pytest.mark.parametrize(
    ("pattern", "rows", "columns"), [("2:4", 9, 70), ("1:2", 5, 12), ("2:8@16", 40, 48), ("2:8@V16", 33, 40)]
)
def test_arrays_of_louver(pattern: str, rows: int, columns: int) -> None:
    w, norm = pruned(rows, columns, pattern), torch.randn(3)
    stored = {"a.weight": Stored(Pattern.parse(pattern), columns)}
    found = dense({"norm": norm, **parts("a.weight", w, pattern)}, stored)
    assert list(found) == ["norm", "a.weight"]
    assert torch.equal(found["a.weight"], w) and found["norm"] is norm


def test_weights_that_the_configuration_names_by_their_stack() -> None:
    """Files have experts apart; the configuration of Transformers names the stack."""
    layers = {"e.gate_up_proj": {"pattern": "2:4", "dtype": "bfloat16"}, "b": {"pattern": "1:2", "dtype": "bfloat16"}}
    w = pruned(8, 16, "2:4")
    (found,) = dense(parts("e.0.gate_proj.weight", w, "2:4"), of_layers(layers)).values()
    assert torch.equal(found, w)
    with pytest.raises(ValueError, match=r"says the pattern of 'c\.weight', got 0 that fit values \[8, 8\]"):
        dense(parts("c.weight", pruned(8, 16, "4:8"), "4:8"), of_layers(layers))


def test_scales_follow_a_layer_and_are_applied_to_other_weights() -> None:
    codes = pruned(8, 16, "2:4").float().to(torch.float8_e4m3fn)
    scale = torch.rand(8) + 0.5
    arrays = {**parts("a.weight", codes, "2:4"), "a.weight.scale": scale}
    layers = of_layers({"a": {"pattern": "2:4", "dtype": "float8_e4m3fn", "scale": "row"}})
    found = dense(arrays, layers)
    assert torch.equal(found["a.weight"].view(torch.uint8), codes.view(torch.uint8))
    assert torch.equal(found["a.weight_scale"], scale[:, None])
    expert = {name.replace("a.", "e.0."): array for name, array in arrays.items()}
    (found,) = dense(expert, layers).values()
    assert torch.equal(found, (codes.float() * scale[:, None]).bfloat16())


@pytest.mark.parametrize("columns", [16, 12, 38])
@pytest.mark.parametrize("any_places", [False, True])
def test_bitmasks(columns: int, any_places: bool) -> None:
    w = torch.randn(6, columns).numpy()
    places = np.random.default_rng(columns)
    # 38 columns: half of the elements, as the format has them behind whole groups.
    half = places.permuted(np.tile([True, False], (6, columns // 2)), axis=1)
    mask = (
        places.random((6, columns)) < 0.4
        if any_places
        else two_of_four(places, (6, columns))
        if columns % 4 == 0
        else half
    )
    w[~mask] = 0
    arrays = {name: torch.from_numpy(each) for name, each in parts_of("a", w, mask, not any_places).items()}
    stored = {"a.weight": Stored(None, columns, bitmask=True)}
    (found,) = dense(arrays, stored).values()
    assert np.array_equal(found.numpy(), w)
    arrays["a.bitmask"][2, 0] ^= 2
    with pytest.raises(ValueError, match=r"bits of 'a\.weight' do not keep as many elements as there are values"):
        dense(arrays, stored)
    with pytest.raises(ValueError, match=r"bits of 'a\.weight' \[6, 99\] are \[6, 13\], got"):
        dense({**arrays, "a.shape": torch.tensor([6, 99])}, stored)


def test_what_is_missing_is_named() -> None:
    arrays = parts("a.weight", pruned(8, 16, "2:4"), "2:4")
    del arrays["a.weight.indices"]
    with pytest.raises(ValueError, match=r"got only \.values of 'a\.weight': the checkpoint is not complete"):
        dense(arrays, {"a.weight": Stored(Pattern(2, 4), 16)})


def test_arrays_that_do_not_fit_name_the_weight() -> None:
    arrays = parts("a.weight", pruned(8, 16, "2:4"), "2:4")
    with pytest.raises(ValueError, match=r"a\.weight: 2:4 of 24 columns keeps 12 values of a row"):
        dense(arrays, {"a.weight": Stored(Pattern(2, 4), 24)})


def test_weights_of_8_bits_have_scales() -> None:
    codes = pruned(8, 16, "2:4").float().to(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match=r"have a scale for each row, got 'a\.weight' without: serve the files"):
        dense(parts("a.weight", codes, "2:4"), {"a.weight": Stored(Pattern(2, 4), 16)})


def test_what_files_say(tmp_path: Path) -> None:
    assert of_files("someone/model") == of_files(str(tmp_path)) == {}
    s = louver.compress(np.ones((4, 6), np.float32) * np.float32([1, 0, 0, 1, 1, 0]), "2:4")
    path = tmp_path / "model.safetensors"
    louver.save(path, {"a.weight": s, "norm": np.ones(3, np.float32)})
    assert of_files(str(tmp_path)) == {"a.weight": Stored(Pattern(2, 4), 6)}
    path.write_bytes(
        path.read_bytes().replace(b'"version": 1', b'"version": 2').replace(b'\\"version\\": 1', b'\\"version\\": 2')
    )
    with pytest.raises(FormatError, match="reads files of schema version 1, got version 2: use the Louver that wrote"):
        of_files(str(tmp_path))
