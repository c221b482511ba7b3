"""Attaches Python programs under `profctl run`, which puts this folder on PYTHONPATH. Then it steps aside.

Any Python that finds this file runs it, so it is written for any version and may not fail. `site` looks for one module
of this name: the user's own, further down the path, runs as if this one were not there.
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
    if os.environ.get("PROFD_ATTACH") == "0":
        return
    if any(helper in argument for argument in getattr(sys, "orig_argv", ())[:6] for helper in HELPERS):
        return
    if sys.version_info < (3, 11):
        say("{0} is too old to be attached: CPython 3.11 is needed".format(sys.executable))
        return
    try:
        import profclient
    except ImportError:
        say(
            "{0} has no profclient and stays unattached: run `{0} -m pip install .` in a clone of profd's "
            "repository".format(sys.executable)
        )
        return
    try:
        from profclient import _recorder  # noqa: F401
    except ImportError as error:  # as in each sub-interpreter, which is left as if we had not been there
        del sys.modules[profclient.__name__]
        say("not attached: the native part of profclient cannot be loaded: {0}".format(error))
        return
    from profclient.agent import attach

    attached = attach(quiet=True)  # profctl has said whether there is a daemon
    if attached.state == "off":
        say("not attached: " + attached.why)


# Children find it through PYTHONPATH, which stays: the workers of a launcher are the job.
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != FOLDER]
try:
    attach()
except Exception as error:
    say("not attached: {0}".format(error))
if os.environ.get("PROFD_RUN") == str(os.getpid()):
    del os.environ["PROFD_RUN"]  # it has spoken if it had to; its sub-interpreters run this, too
# What comes of this comes of it without us: `site` knows what to do where there is no such module.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401  # the user's
