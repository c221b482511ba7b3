// Steps that the program numbers itself (profclient.step()), and a recording that waits for one of them. A number is
// given when its step begins; the first is 0. Nothing here takes a lock: the program's thread obeys, in step().
// Where the program numbers none, its optimizers can: step n then begins when the n-th of their steps has ended.
#pragma once

#include <cstdint>

#include "writer.h"

namespace profd::recorder {

// A step of the program's begins: its number. Opens or closes the window of the session that runs.
struct Begun {
  uint64_t number;
  bool over;  // the recording has all the steps that it waited for
  bool watched;  // it is the one of watch_step, or a later one: said once
};
Begun begin_step();

// Optimizers number the steps, from their first one on; no effect where the program does. False: not any longer.
void number_by_optimizers(bool yes);
bool optimizers_number();
// An optimizer's step has ended, and the next one of the program's begins; only where they number.
Begun end_optimizer_step();
// The program numbers its steps from now on, from 0. True: this ends a recording of steps that optimizers have numbered.
bool number_by_program();

// Steps that have begun: the number that the next one gets. 0: the program numbers none, or has not begun.
uint64_t steps_begun();

// begin_step says when this step, or one after it, begins; once.
void watch_step(uint64_t number);
bool step_came();  // it has
// A capture waits for a step: from watch_step to forget_watched_step, which a fork child calls, too.
bool step_awaited();
void forget_watched_step();

struct StepWindow {
  uint64_t step = 0;     // the first that has to be whole
  uint64_t steps = 0;    // whole ones, from it on; 0: no end by steps
  uint32_t sources = 0;  // that record from one step before it on ...
  Session session = 0;   // ... of this one; to one step after the last
};

// False: the step runs already, or is past.
bool await_window(const StepWindow& window);
void forget_window();
// While the window has not opened: these sources record then. False: it is open, or there is none.
bool limit_window(uint32_t sources);

struct Opened {
  uint64_t step = 0;     // the first whole one
  uint64_t real_ns = 0;  // CLOCK_REALTIME; 0: it has not opened
  uint64_t ended = 0;    // steps that had ended, as steps.h counts them
};
Opened opened_window();

}  // namespace profd::recorder
