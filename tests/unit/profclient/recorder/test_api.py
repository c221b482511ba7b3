"""The public names: light to import, complete, and harmless where nothing can be recorded."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap

import profclient
import pytest
from profclient import recording, stand_in


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_name_is_there() -> None:
    assert profclient.__all__ == sorted(profclient.__all__)
    for name in profclient.__all__:
        assert getattr(profclient, name) is not None
    assert set(profclient.__all__) <= set(dir(profclient))
    assert profclient.missing == ""
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = profclient.nothing


def test_importing_it_brings_nothing_heavy() -> None:
    loaded = run("""
        import sys
        before = set(sys.modules)
        import profclient
        assert "profclient._recorder" not in sys.modules
        profclient.record_function
        print(*{name.partition(".")[0] for name in set(sys.modules) - before})
        """).split()
    assert not set(loaded) & {"numpy", "asyncio", "grpc", "google", "torch", "typing", "inspect", "logging"}


def test_the_stand_in_has_the_same_names_and_parameters() -> None:
    for name in recording.__all__:
        if name == "missing":
            continue
        ours, native = getattr(stand_in, name), getattr(recording, name)
        try:
            signature = inspect.signature(native)
        except ValueError:  # says itself only in words
            continue
        if name not in ("record_function", "record_op"):
            assert list(inspect.signature(ours).parameters) == list(signature.parameters), name


def test_without_the_native_part_everything_is_harmless() -> None:
    run("""
        import asyncio, sys
        sys.modules["profclient._recorder"] = None  # as where it was not built
        import profclient

        assert profclient.missing.startswith("nothing is recorded in this process: ")
        with profclient.record_function("x", a=1) as span, profclient.record_op("y", [1], scope=2):
            assert not span.recorded and span.end_on(3) == 3

        @profclient.record_function("f")
        def f(x): return x + 1
        assert f(1) == 2
        profclient.range_push("a"); profclient.range_pop()
        profclient.instant("i", a=1); profclient.counter("c", 1)
        profclient.record_alloc(1, 2); profclient.record_out_of_memory(3)
        profclient.record_backend_event("b", 1, 2)
        assert (profclient.step(), profclient.step()) == (0, 1)
        """)


def test_sub_interpreters_are_refused_and_harmless() -> None:
    run("""
        import sys
        if sys.version_info >= (3, 13):
            import _interpreters as interpreters
        else:
            import _xxsubinterpreters as interpreters
        script = '''
        import sys
        sys.path[:] = %r
        import profclient
        with profclient.record_function("x"):
            pass
        assert "interpreter" in profclient.missing, profclient.missing
        ''' % (sys.path,)
        import profclient, textwrap
        assert profclient.missing == ""
        made = interpreters.create()
        failure = interpreters.run_string(made, textwrap.dedent(script))
        assert failure is None, failure
        with profclient.record_function("x"):
            pass
        """)


def test_idle_it_takes_next_to_no_memory() -> None:
    """GIVEN a process that uses every function WHEN nothing is recorded THEN it has grown by less than 100 kB."""
    grown = run("""
        import gc, os, profclient
        from profclient import _recorder

        def resident():
            for line in open("/proc/self/smaps_rollup"):
                if line.startswith("Pss_Anon:"):
                    return int(line.split()[1])

        def use():
            for i in range(2000):
                with profclient.record_function("x"):
                    profclient.instant("i")
                    profclient.counter("c", 1.0)
                profclient.range_push("a"); profclient.range_pop()
        use(); gc.collect(); resident()
        before = resident()
        use()
        idle = resident() - before
        _recorder.arm(); use(); _recorder.disarm(); assert _recorder.release()
        after = resident() - before
        print(idle, after)
        """).split()
    assert int(grown[0]) <= 100, grown
    assert int(grown[1]) <= 300, grown  # what is left after a recording: queues and names
