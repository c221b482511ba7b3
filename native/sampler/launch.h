// Becomes py-spy, confined and tied to the daemon.
#pragma once

namespace profd::sampler {

// The arguments of `confine`, then the command and its words, then null.
//
// The daemon has threads, so nothing may run in its child between fork and exec; what must be set there is set here. The
// kernel interrupts py-spy when the daemon is killed, by whatever means; py-spy lets go of the target and ends by
// itself. A kill could leave a target stopped that py-spy was just attaching to.
[[noreturn]] void launch(char** arguments);

}  // namespace profd::sampler
