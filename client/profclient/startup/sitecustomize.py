"""Attaches Python programs under `profctl run`, which puts this folder on PYTHONPATH. Then it steps aside.

Whatever Python finds this runs it, so it is written for any version and may not fail. `site` looks for one module of
this name: the user's own, further down the path, runs as if this one were not there.
"""

import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# Helpers of multiprocessing that run nothing of the user's.
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.semaphore_tracker")


def say(sentence):
    # type: (str) -> None
    """One line, in the process that profctl became; its children are quiet."""
    if os.environ.get("PROFD_RUN") == str(os.getpid()):
        sys.stderr.write("profctl run: " + sentence + "\n")


def attach():
    # type: () -> None
    """Unless this Python cannot, or nobody is to see it."""
    if any(helper in argument for argument in getattr(sys, "orig_argv", ())[:6] for helper in HELPERS):
        return
    if sys.version_info < (3, 11):
        say("{0} is too old to be attached: CPython 3.11 is needed".format(sys.executable))
        return
    try:
        from profclient.agent import attach
    except ImportError:
        say("{0} has no profclient: run `{0} -m pip install profd`, or it stays unattached".format(sys.executable))
        return
    attached = attach(quiet=True)  # profctl has said whether there is a daemon
    if attached.state == "off" and os.environ.get("PROFD_ATTACH") != "0":
        say("not attached: " + attached.why)


def run_users_own():
    # type: () -> None
    """What `site` would have imported. Its errors are its own, and `site` knows what to do with them."""
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


# Children find it through PYTHONPATH, which stays: the workers of a launcher are the job.
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != FOLDER]
try:
    attach()
except Exception as error:
    say("not attached: {0}".format(error))
if sys.version_info >= (3, 4):
    run_users_own()
