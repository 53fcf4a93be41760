"""`louver advise`: tables, JSON, pictures and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import louver
from louver.cli.commands.advise import parse_tokens

if TYPE_CHECKING:
    from support.command_line import Cli


@pytest.fixture
def model(tmp_path: Path, rng: np.random.Generator) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    louver.save(
        folder / "model.safetensors",
        {f"model.layers.{i}.mlp.up_proj.weight": rng.standard_normal((256, 128)).astype(np.float16) for i in (0, 1)},
    )
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))
    return folder


def test_a_product_as_a_table(cli: Cli) -> None:
    result = cli("advise", "4096", "256", "4096", "--on", "H200")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "4096×4096 weight, 256 tokens, NVIDIA H200"
    (row,) = [line for line in lines if line.startswith("e4m3 2:4 ")]
    assert "table" in row and "10.0 MiB" in row and "quantize, prune, compress" in row and "×, " in row
    assert any(line.startswith("fastest: ") and "--measure decides" in line for line in lines)
    small = cli("advise", "64", "8", "64", "--format", "f16").output.splitlines()
    assert "f16: no record of a weight of so few elements" in small


def test_a_product_as_json(cli: Cli) -> None:
    found = json.loads(cli("advise", "64", "8", "64", "--format", "s8", "--format", "f16 2:4", "--json").output)
    assert found["kind"] == "advise" and found["sizes"] == [64, 8, 64] and found["device"] == "NVIDIA H200"
    first, second = found["rows"]
    assert first["format"] == "f16 2:4" and first["time"]["low"] < first["time"]["us"] < first["time"]["high"]
    assert first["limit"] == "launch" and first["bytes"] == 64 * 64 + 64 * 8 and first["refusal"] is None
    assert second["time"] is None and second["refusal"] == "PyTorch's dense product of s8 needs 17 tokens or more"


def test_a_model_as_tables_and_a_picture(cli: Cli, model: Path, tmp_path: Path) -> None:
    three = [part for name in ("f16 2:4", "s8", "bf16 4:8@128") for part in ("--format", name)]
    output = cli("advise", "--model", model, "--tokens", "1,64", "--on", "h100", *three).output
    assert f"{model}: 2 weights, NVIDIA H100 80GB HBM3" in output and "0 of 2" in output
    assert "model.layers.*.mlp.up_proj.weight" in output and "fastest format by tokens" in output
    assert re.search(r"^1–8,192  +f16 2:4 ", output, re.MULTILINE)
    assert "no record of a weight of so few elements: " in output
    record, picture = tmp_path / "a.json", tmp_path / "a.png"
    assert cli("advise", "--model", model, *three, "--json", "-o", record).exit_code == 0
    found = json.loads(record.read_text())
    assert found["tokens"] == [1, 64, 4096] and len(found["layers"]) == 2
    assert len(found["lines"]["tokens"]) == len(found["lines"]["us"]["f16 2:4"]) > 20
    assert found["lines"]["us"]["s8"][0] is None and found["fastest"][0]["tokens"] == 1
    assert all(each["ahead"] != each["behind"] for each in found["crossings"])
    pytest.importorskip("matplotlib")
    assert cli("plot", record, picture).exit_code == 0 and picture.read_bytes().startswith(b"\x89PNG")
    assert cli("advise", "8", "8", "8", "--json", "-o", record).exit_code == 0
    assert "advice for a model, with times, is drawn over tokens" in cli.refused("plot", record, picture)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ((), "Give M N K, or --model DIR; got 0 sizes."),
        (("4", "5"), "Give M N K, or --model DIR; got 2 sizes."),
        (("4", "5", "x"), "'x' is not a valid integer"),
        (("4", "0", "4"), "n is an integer from 1 to 2147483647, got 0"),
        (("4", "4", "4", "--tokens", "1"), "--tokens belongs to --model"),
        (("4", "4", "4", "--model", "here"), "leave out M N K, or --model"),
        (("4", "4", "4", "--format", "f64"), "formats have elements of f16, bf16, e4m3, s8, got 'f64'"),
        (("4", "4", "4", "--on", "A100"), "run louver advise --measure on that GPU"),
        (("4", "4", "4", "--on", "H200", "--measure"), "leave out measure or device, got 'H200'"),
        (("--model", "here", "--on", "H200", "--measure"), "leave out --measure or --on, got 'H200'"),
        (("--model", "here", "--tokens", "1,,2"), "tokens are positive numbers of at most 9 digits, separated"),
        (("--model", "here", "--tokens", "0"), "such as 1,64,4096, got '0'"),
    ],
)
def test_bad_input(cli: Cli, arguments: tuple[str, ...], rule: str) -> None:
    result = cli("advise", *arguments)
    assert result.exit_code == 2 and rule in result.output, result.output


def test_a_folder_without_a_configuration(cli: Cli, model: Path) -> None:
    (model / "config.json").unlink()
    assert "a model is a folder with config.json beside its weights" in cli.refused("advise", "--model", model)


def test_measuring_needs_a_gpu(cli: Cli, monkeypatch: Any) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = cli("advise", "8", "8", "8", "--measure")
    assert result.exit_code == 1 and "benchmarks need a GPU" in result.output


def test_numbers_of_tokens() -> None:
    assert parse_tokens(" 1, 64,4096") == (1, 64, 4096)
