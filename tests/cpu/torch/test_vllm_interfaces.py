"""The table of vLLM's interfaces: a change of any of them is an error that names it."""

# ruff: noqa: E402

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers")

from louver.torch.vllm import InterfaceError, check, register
from louver.torch.vllm.interfaces import INTERFACES, VERSIONS, Interface
from support import vllm_stub


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    yield from vllm_stub.installed(monkeypatch)


def owner_of(interface: Interface) -> tuple[Any, str]:
    owner: Any = sys.modules[interface.module]
    *parents, last = interface.name.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, last


def registered(stub: dict[str, Any]) -> list[str]:
    found = stub["vllm.model_executor.layers.quantization"].registered
    return [*found, *stub["vllm.model_executor.model_loader"].registered]


def test_the_stub_passes(stub: dict[str, Any]) -> None:
    check()
    register()
    register()
    assert registered(stub) == ["louver", "louver"]


def test_without_vllm_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(InterfaceError, match=f"serves with vLLM {VERSIONS}, which is not installed: pip install vllm"):
        check()


@pytest.mark.parametrize("interface", INTERFACES, ids=str)
def test_a_missing_interface_is_named(
    stub: dict[str, Any], monkeypatch: pytest.MonkeyPatch, interface: Interface, caplog: pytest.LogCaptureFixture
) -> None:
    owner, last = owner_of(interface)
    for each in owner.__mro__ if isinstance(owner, type) else [owner]:
        if last in each.__dict__:
            monkeypatch.delattr(each, last)
        if isinstance(each, type) and last in inspect.get_annotations(each):
            monkeypatch.delitem(each.__annotations__, last)
    with pytest.raises(InterfaceError, match=rf"{VERSIONS}, got 0\.0\.stub, where vllm\.\S+{last}") as error:
        check()
    with caplog.at_level(logging.ERROR):
        register()
    assert str(error.value) in caplog.text
    assert not registered(stub)


@pytest.mark.parametrize("interface", [each for each in INTERFACES if each.parameters is not None], ids=str)
def test_a_changed_signature_is_named(
    stub: dict[str, Any], monkeypatch: pytest.MonkeyPatch, interface: Interface
) -> None:
    owner, last = owner_of(interface)
    own = ", ".join(interface.parameters or ())
    scope: dict[str, Any] = {}
    for new in ("first" + (f", {own}" if own else ""), (f"{own}, " if own else "") + "needed"):
        exec(f"def changed({new}): ...", scope)
        monkeypatch.setattr(
            owner, last, staticmethod(scope["changed"]) if isinstance(owner, type) else scope["changed"]
        )
        with pytest.raises(InterfaceError, match=f"where {interface} differs: its parameters are {new}; Louver knows"):
            check()


def test_further_parameters_with_defaults_are_for_calls_only(
    stub: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaders = stub["vllm.model_executor.model_loader"]

    def called(load_format: str, new: int = 0) -> Any: ...

    def overridden(self: Any, layer: Any, prefix: str, new: int = 0) -> Any: ...

    monkeypatch.setattr(loaders, "register_model_loader", called)
    check()
    base = stub["vllm.model_executor.layers.quantization.base_config"].QuantizationConfig
    monkeypatch.setattr(base, "get_quant_method", overridden)
    with pytest.raises(InterfaceError, match="get_quant_method differs: its parameters are self, layer, prefix, new"):
        check()
