// Waits for sockets that linger are ended by a timer's signal after a millisecond; those for files it does not end.
#pragma once

namespace profd::porter {

// What the signal needs, once. False where that cannot be, with errno.
bool prepare_waits();

// From now on waits are ended, or not.
void interrupt_waits(bool on);

}  // namespace profd::porter
