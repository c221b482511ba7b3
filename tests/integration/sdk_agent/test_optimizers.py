"""Steps counted by the optimizer, and what torch keeps of its hooks meanwhile: what the program put there."""

from __future__ import annotations

import os

import pytest

from tests.support.agent_daemon import STATUS, STOPPED

pytest.importorskip("torch", reason="needs torch")

LOOP = """
import sys, torch
from torch.autograd.profiler import record_function
from torch.optim import optimizer as optimizers
from profclient import agent
parameter = torch.nn.Parameter(torch.ones(2))
parameter.grad = torch.ones(2)
plain = torch.optim.SGD([parameter], lr=0.1)
class Wrapping(torch.optim.SGD):
    def step(self, closure=None):
        plain.step()
        return super().step(closure)
class Failing(torch.optim.SGD):
    def step(self, closure=None): raise ValueError("of the program's own")
def fails():
    try: Failing([parameter], lr=0.1).step()
    except ValueError as error: return error
wrapping = Wrapping([parameter], lr=0.1)
def say(*what): print(*what, flush=True)
def seen(): return [len(hooks) for hooks in (optimizers._global_optimizer_pre_hooks,
                                             optimizers._global_optimizer_post_hooks,
                                             plain._optimizer_step_pre_hooks, plain._optimizer_step_post_hooks)]
say("ready")
for line in sys.stdin:
    exec(line)
    say("done")
"""


@pytest.fixture
def after_ms():
    return 50


@pytest.fixture
def does(agents, after_ms):
    return agents.job(LOOP, environ={"PYTHONWARNINGS": "ignore"}, after_ms=after_ms).does


def test_it_ends_with_the_last_outermost_step_that_was_asked_for(agents, does):
    link = agents.daemon.accept()
    os.close(link.arm("ranges", iterations=3).fd)
    does("while agent.hooks_begun() == 0: pass")
    does("plain.step()")  # begins the first
    does("wrapping.step()")
    does('assert str(fails()) == "of the program\'s own"')
    does("with record_function('Optimizer.step#Mine.step'): plain.step()")
    link.statuses.clear()
    does("wrapping.step()")
    stopped = link.next(STOPPED)
    assert (stopped.fields["reason"], stopped.fields["steps"]) == ("iterations", "3")


def test_nothing_is_registered_and_all_is_as_it_was(agents, does):
    link = agents.daemon.accept()
    does("original = vars(record_function)['__exit__']; shape = list(vars(record_function)); before = seen()")
    for epoch in (1, 2):
        os.close(link.arm("ranges", epoch=epoch, iterations=100).fd)
        does(f"while agent.hooks_begun() < {epoch}: pass")
        does("assert seen() == before and list(vars(record_function)) == shape")
        does("import inspect; assert inspect.getsource(record_function.__exit__) == inspect.getsource(original)")
        does("assert record_function.__exit__.__name__ == '__exit__' and inspect.isfunction(record_function.__exit__)")
        does("assert 'run_callbacks_on_exit' in inspect.getsource(record_function)")
        does("for _ in range(4): plain.step()")
        assert link.stop(epoch).fields["steps"] == "3"
        link.release(epoch)
        does("while vars(record_function)['__exit__'] is not original: pass")


def test_who_wraps_it_meanwhile_keeps_it(agents, does):
    link = agents.daemon.accept()
    os.close(link.arm("ranges", iterations=100).fd)
    does("while agent.hooks_begun() == 0: pass")
    does("ours = record_function.__exit__; record_function.__exit__ = lambda *a: ours(*a)")
    assert link.stop().fields["steps"] == "0"
    link.release()
    does("wrapped = vars(record_function)['__exit__']; assert wrapped.__name__ == '<lambda>'")
    os.close(link.arm("ranges", epoch=2, iterations=100).fd)
    does("while agent.hooks_begun() == 1: pass")
    does("for _ in range(3): plain.step()")
    assert link.stop(2).fields["steps"] == "2"  # each once
    link.release(2)
    does("while vars(record_function)['__exit__'] is not wrapped: pass")


@pytest.mark.parametrize("after_ms", [600_000])
def test_steps_are_counted_unasked_and_after_a_recording_too(agents, does):
    link = agents.daemon.accept()
    does("original = vars(record_function)['__exit__']")
    os.close(link.arm("ranges,torch:auto", iterations=0).fd)
    does("while agent.hooks_begun() == 0: pass")
    does("for _ in range(4): plain.step()")
    assert link.stop().fields["steps"] == "3"
    link.statuses.clear()
    link.release()
    does("for _ in range(5): plain.step()")
    assert int(link.next(STATUS).fields["step_ns_after"]) > 0
    in_child = "os.fork() or os._exit(vars(record_function)['__exit__'] is not original)"
    does(f"import os; assert os.waitpid({in_child}, 0)[1] == 0")  # nothing of it is in a child
    does("assert vars(record_function)['__exit__'] is not original")
    does("agent.detach(); assert vars(record_function)['__exit__'] is original")
