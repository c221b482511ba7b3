// The part of the agent that enters Python: a short-lived thread that waits for the GIL, so that the control thread
// need not.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "agent.h"

namespace profd::agent {

// From now on `call(name, text)` is called, name being armed, limited, stopping, released or rested. With the GIL.
void open_hooks(PyObject* call);

// A PostHook, and what then begins it (Settings::run_posted). Without the GIL. A stop before Python was entered for the
// arming takes that back, and is done at once, or behind the stops before it.
void post_hook(Hook hook, std::string_view text);
bool run_hooks();

// Around a fork: no call begins, and the thread is gone when this returns. False: the call that runs has not ended
// within that time, and goes on. Without the GIL, which it may need.
bool pause_hooks(int milliseconds);
void resume_hooks();
pid_t hooks_thread(bool* running);  // its kernel id, 0 before there was one

// No call begins any more, and the one that runs has ended when this returns (or took longer than `seconds`). Without
// the GIL: after it the interpreter may finalize, where PyGILState_Ensure would end the thread.
void close_hooks(int seconds);

}  // namespace profd::agent
