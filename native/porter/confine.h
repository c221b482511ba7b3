// What a porter may not do, from before it has the first descriptor of anybody.
#pragma once

#include <sys/resource.h>

namespace profd::porter {

// Give up identity (none: -1) and rights, for good. False where that cannot be, with errno.
bool drop_privileges(long uid, long gid, rlim_t descriptors);

// Leave these system calls only: `bytes` of classic BPF (profd.attached.agents.porter_calls). None: 0 bytes.
bool filter_calls(void* program, long bytes);

}  // namespace profd::porter
