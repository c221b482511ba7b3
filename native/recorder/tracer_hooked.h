// CPython 3.11: the threads that our profile function is set in.
//
// CPython's own function for that raises an audit event for each thread: code of the program runs, others take the GIL,
// and the thread that is meant may be gone when it comes back. Here the fields of thread states are set as it sets
// them, and the program is asked once, before. The list of threads is walked under its own lock, since C code adds and
// removes thread states without the GIL. While that lock is held no object is made or let go of, and the GIL is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parts.h"

#if PY_VERSION_HEX < 0x030c0000

namespace profd::tracer {

int on_event(PyObject*, PyFrameObject* frame, int what, PyObject* arg) noexcept;  // what is set: tracer_profile.cpp

extern PyObject* hook_object;  // what sys.getprofile() says while we are set
extern uint64_t threads_seen;  // the newest that was looked at, by PyThreadState id

// Set in this thread, by whichever way. A program may have got the object from sys.getprofile() and set it itself.
inline bool is_ours(const PyThreadState* thread) { return thread->c_profileobj == hook_object; }

// The two need the GIL alone. `set_in` is for threads without a profile function, or with ours.
void set_in(PyThreadState* thread);
void take_out_of(PyThreadState* thread);

uint64_t newest_thread();

enum class Which { New, All };  // since one of these walks; all

// Set it in threads that have none. False: somebody holds the list, and nothing was done. Throws std::bad_alloc.
bool set_where_free(Which which, const PyThreadState* except);

// The same in a thread that may wait: it gives up the GIL meanwhile. False: in vain.
bool set_everywhere(const PyThreadState* except);
bool take_out_everywhere(size_t* taken_over);             // counts the threads where somebody else's is set
bool profilers_of_others(std::vector<PyObject*>* found);  // new references; null: a profiler in C without an object

}  // namespace profd::tracer

#endif
