from __future__ import annotations

from dataclasses import replace

import pytest

from louver.isa.targets import SM_90A, TARGETS, target
from support.ptxas import assemble_text, header


def test_the_h200_and_its_kin():
    hopper = target("sm_90a")
    assert hopper is SM_90A
    assert hopper.max_shared_bytes == 232448
    assert (hopper.setmaxnreg_min, hopper.setmaxnreg_max, hopper.setmaxnreg_step) == (24, 256, 8)
    assert hopper.has("wgmma.sp") and not hopper.has("tcgen05.sp")
    assert [name for name, t in TARGETS.items() if t.has("wgmma.sp")] == ["sm_90a"]
    assert [name for name, t in TARGETS.items() if t.has("tcgen05.sp")] == ["sm_100a"]
    assert not target("sm_80").bulk_copies


def test_errors_name_what_is_known():
    with pytest.raises(ValueError, match=r"sm_80, sm_90a, sm_100a, sm_120a, got 'sm_70'"):
        target("sm_70")
    with pytest.raises(ValueError, match="named as PTX names it"):
        replace(SM_90A, name="hopper")
    with pytest.raises(ValueError, match="whole KiB, got 1000"):
        replace(SM_90A, max_shared_bytes=1000)


@pytest.mark.parametrize("name", TARGETS)
def test_ptxas_agrees_about_the_least_version(name):
    known = target(name)
    major, minor = known.min_ptx
    body = ".visible .entry k() {\nret;\n}\n"
    assemble_text(header((major, minor), name) + body, name)
    older = (major, minor - 1) if minor else (major - 1, 8)
    with pytest.raises(AssertionError):
        assemble_text(header(older, name) + body, name)
