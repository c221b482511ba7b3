// Tells CUPTI in which of our ranges and ops a thread is: external correlation of the kind CUSTOM2 (Kineto has CUSTOM0
// and CUSTOM1). A record of it precedes each call that is recorded, and names the innermost one.
#pragma once

#include "../recorder/writer.h"
#include "cupti_abi.h"

namespace profd::cupti {

// From now on; `cupti` can push and pop. What threads have open already is not known to it.
void enclose_with(const Functions& cupti, recorder::Api& api);
void enclose_no_more(recorder::Api& api);

}  // namespace profd::cupti
