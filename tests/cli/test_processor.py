"""numpy's sort is told which instructions to leave alone, on the processors that need it only."""

import pytest

from elman.cli.processor import choose_instructions

ZEN4 = "vendor_id : AuthenticAMD\nflags : fpu avx2 avx512f avx512dq\n"


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        (ZEN4, "X86_V4"),
        (ZEN4.replace("avx512f avx512dq", ""), None),
        (ZEN4.replace("AuthenticAMD", "GenuineIntel"), None),
        ("", None),
        (None, None),
    ],
)
def test_avx512_is_avoided_where_it_sorts_slowly(cpus, expected, tmp_path):
    path, environment = tmp_path / "cpuinfo", {}
    if cpus is not None:
        path.write_text(cpus)
    choose_instructions(environment, path)
    assert environment.get("NPY_DISABLE_CPU_FEATURES") == expected


def test_a_setting_that_is_there_stays(tmp_path):
    (tmp_path / "cpuinfo").write_text(ZEN4)
    environment = {"NPY_DISABLE_CPU_FEATURES": "AVX512_ICL"}
    choose_instructions(environment, tmp_path / "cpuinfo")
    assert environment == {"NPY_DISABLE_CPU_FEATURES": "AVX512_ICL"}
