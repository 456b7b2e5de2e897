"""Tests of how much memory is said to be there, by what a system may say."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from keras_dml.data import caching as memory
from keras_dml.data.caching import available_memory

MEMINFO = """MemTotal:        16000000 kB
MemFree:          1000000 kB
MemAvailable:     {} kB
Buffers:           500000 kB
"""
MB = 2**20
V1, V2 = "memory/memory.limit_in_bytes", "memory.max"
USE = {V1: "memory/memory.usage_in_bytes", V2: "memory.current"}

System = Callable[..., None]


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    """Writes the files of a system; without arguments it has none."""
    root = str(tmp_path / "cgroup")
    groups = [
        [path.replace("/sys/fs/cgroup", root) for path in group]
        for group in memory._GROUPS
    ]
    assert [group[0] for group in groups] == [f"{root}/{x}" for x in (V2, V1)]
    monkeypatch.setattr(memory, "_GROUPS", groups)
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")

    def write(megabytes: int | None = None, **limits: tuple[str, str]) -> None:
        if megabytes is not None:
            text = MEMINFO.format(megabytes * 1024)
            (tmp_path / "meminfo").write_text(text)
        for version, texts in limits.items():
            limit = {"v1": V1, "v2": V2}[version]
            for name, text in zip((limit, USE[limit]), texts, strict=True):
                path = tmp_path / "cgroup" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    return write


def pages(monkeypatch: pytest.MonkeyPatch, **values: int) -> None:
    """What `sysconf` says; it knows nothing else."""

    def sysconf(name: str) -> int:
        if name not in values:
            raise ValueError("unrecognized configuration name")
        return values[name]

    monkeypatch.setattr(os, "sysconf", sysconf)


def test_what_the_system_says_is_available(system: System) -> None:
    system(300)
    assert available_memory() == 300 * MB


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_limit_of_a_container_counts(system: System, version: str) -> None:
    system(300, **{version: (f"{200 * MB}\n", f"{150 * MB}\n")})
    assert available_memory() == 50 * MB
    # Of what is left of a larger limit, the system does not have so much.
    system(300, **{version: (f"{900 * MB}\n", f"{150 * MB}\n")})
    assert available_memory() == 300 * MB


def test_the_smaller_of_two_limits_counts(system: System) -> None:
    system(300, v1=(str(90 * MB), "0"), v2=(str(80 * MB), str(MB)))
    assert available_memory() == 79 * MB
    system(300, v1=(str(70 * MB), "0"))
    assert available_memory() == 70 * MB


def test_more_than_the_limit_leaves_nothing(system: System) -> None:
    system(300, v2=(str(100 * MB), str(120 * MB)))
    assert available_memory() == 0


def test_a_container_without_a_limit(system: System) -> None:
    system(300, v2=("max\n", f"{150 * MB}\n"))
    assert available_memory() == 300 * MB


def test_a_limit_without_its_use_does_not_count(
    system: System, tmp_path: Path
) -> None:
    system(300, v2=(str(100 * MB), "0"))
    (tmp_path / "cgroup" / USE[V2]).unlink()
    assert available_memory() == 300 * MB


def test_a_quarter_of_all_where_the_system_does_not_say(
    system: System, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pages(monkeypatch, SC_PHYS_PAGES=1000, SC_PAGE_SIZE=4096)
    system()
    assert available_memory() == 1_024_000
    # Linux before 3.14.
    (tmp_path / "meminfo").write_text("MemTotal:  16000000 kB\n")
    assert available_memory() == 1_024_000
    system(v2=("24000", "4000"))
    assert available_memory() == 20_000


def test_nothing_where_nothing_is_known(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    system()
    pages(monkeypatch)
    assert available_memory() == 0
    pages(monkeypatch, SC_PHYS_PAGES=-1, SC_PAGE_SIZE=4096)
    assert available_memory() == 0
    monkeypatch.delattr(os, "sysconf")  # As on Windows.
    assert available_memory() == 0


def test_of_this_system(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/meminfo").exists():
        pytest.skip("Linux only")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 <= available_memory() <= total
    monkeypatch.setattr(memory, "_GROUPS", ())
    assert 0 < available_memory() <= total
