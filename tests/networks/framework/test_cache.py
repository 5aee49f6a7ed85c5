"""Where the cache is, and what machine code in it belongs to."""

from pathlib import Path

from distrl.networks.framework.cache import cache_directory, processor

CORE = "processor : {core}\nmodel name : Fast 9000\ncpu MHz : {mhz}\nflags : fpu sse {flag}\n\n"


def test_the_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory("jax") == Path("/somewhere/distrl/jax")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_directory("bundles") == Path("/home/me/.cache/distrl/bundles")


def test_processors_are_told_apart_by_what_they_can_do(tmp_path):
    def named(name: str, *cores: str) -> str:
        (tmp_path / name).write_text("".join(cores))
        return processor(tmp_path / name)

    one = named("one", CORE.format(core=0, mhz=2400.0, flag="avx2"))
    more = named("more", *(CORE.format(core=core, mhz=2600.0 + core, flag="avx2") for core in range(2)))
    other = named("other", CORE.format(core=0, mhz=2400.0, flag="avx512f"))
    assert one == more != other
    assert processor(tmp_path / "absent") not in (one, other)
    assert processor() == processor()
