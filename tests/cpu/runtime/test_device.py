from __future__ import annotations

from typing import Any

import pytest

from louver.runtime import driver
from louver.runtime.device import (
    Device,
    NoDevice,
    NoDeviceError,
    current_device,
    device,
    driver_version,
    require_device,
)
from louver.runtime.driver import DriverError, DriverMissingError, call, device_context, is_capturing


def test_a_device_is_described(fake: Any) -> None:
    assert current_device() == Device(0, "Fake GPU", (9, 0), 132, 232448, 50 << 20, 140 << 30, (13, 2))
    assert str(require_device()) == "Fake GPU (sm_90a, 132 SMs, 140 GiB)"
    assert driver_version() == "13.2"
    asked = len(fake.calls)
    current_device()
    assert not [name for name, _ in fake.calls[asked:] if name == "cuDeviceGetAttribute"]


def test_the_current_context_names_the_device(fake: Any) -> None:
    with device_context(1):
        assert require_device().ordinal == 1
    assert require_device().ordinal == 0
    assert fake.contexts == [0]


@pytest.mark.parametrize(
    ("capability", "target"), [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((12, 0), "sm_120a")]
)
def test_targets_have_their_own_instructions(capability: tuple[int, int], target: str) -> None:
    assert Device(0, "x", capability, 1, 1, 1, 1, (13, 0)).target == target


def test_no_device_says_what_still_works(fake: Any) -> None:
    fake.devices = 0
    found = current_device()
    assert isinstance(found, NoDevice)
    assert "sees no device" in str(found) and "reference path still work" in str(found)
    with pytest.raises(NoDeviceError, match="no GPU: the NVIDIA driver sees no device"):
        require_device()


def test_a_driver_that_does_not_start_is_named(fake: Any) -> None:
    fake.fails["cuInit"] = [100] * 3
    found = current_device()
    assert isinstance(found, NoDevice)
    assert found.reason == "the NVIDIA driver does not start: CUDA_ERROR_FAKE (100)"
    with pytest.raises(DriverMissingError, match="does not start"):
        driver_version()


def test_a_missing_library_is_named(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(flags: int) -> Any:
        raise RuntimeError("libcuda.so.1: not found")

    monkeypatch.setattr(fake, "cuInit", missing, raising=False)
    assert "libcuda" in str(current_device())


def test_a_missing_package_is_named(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(driver.importlib, "import_module", missing)
    assert "cuda-bindings cannot be imported" in str(current_device())


def test_a_device_that_fails_is_no_device(fake: Any) -> None:
    fake.fails["cuDeviceTotalMem"] = [46]
    assert isinstance(current_device(), NoDevice)
    assert isinstance(current_device(), Device)


def test_errors_have_the_name_and_what_was_tried(fake: Any) -> None:
    fake.fails["cuDeviceGet"] = [1]
    with pytest.raises(
        DriverError, match=r"looking for device 7 failed with CUDA_ERROR_INVALID_VALUE \(1\)$"
    ) as caught:
        device(7)
    assert (caught.value.code, caught.value.name) == (1, "CUDA_ERROR_INVALID_VALUE")
    fake.fails["cuMemAllocAsync"] = [2]
    with pytest.raises(DriverError, match=r"cuMemAllocAsync failed with .* \(2\): free device memory"):
        call("cuMemAllocAsync", 1, 0)


def test_the_context_is_left_after_an_error(fake: Any) -> None:
    with pytest.raises(KeyError), device_context(0):
        raise KeyError
    assert fake.contexts == [0]


def test_captures_are_seen(fake: Any) -> None:
    assert is_capturing(0xCA)
    assert not is_capturing(0)
    fake.fails["cuStreamIsCapturing"] = [906, 400]
    assert is_capturing(0)
    with pytest.raises(DriverError, match="asking whether a stream is being captured"):
        is_capturing(5)


def test_without_a_driver_nothing_raises() -> None:
    assert isinstance(current_device(), Device | NoDevice)
