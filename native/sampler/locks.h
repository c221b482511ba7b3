// Which thread holds the lock that another waits for: `profctl where`, docs/decisions/0023-lock-holders.md.
#pragma once

namespace profd::sampler {

// The arguments of `confine`, then the threads, `count` in all. Prints a line for each thread that waits for a lock
// whose holder is sure: `THREAD thread N`, or `THREAD ident N` as pthread_self gives it. Or `THREAD gil`: it waits for
// the interpreter's lock, and py-spy knows who has that.
//
// Two locks say who holds them. A mutex of glibc has its owner beside the word that waiters sleep on. threading.RLock has
// it in its object, which the waiter has a pointer to on its stack: what looks like one there is taken for it only if it
// is of the type `_thread.RLock` and its lock is the very word. Nothing says who holds a threading.Lock, nor, from
// CPython 3.14 on, which word belongs to an RLock. The GIL is in the interpreter's own data (_PyRuntime), where nothing
// else is that a thread sleeps on: CPython allocates all its other locks.
[[noreturn]] void look_at_locks(char** arguments, int count);

}  // namespace profd::sampler
