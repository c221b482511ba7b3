// Whether anything lies in a Unix socket whose end may take long.
#pragma once

namespace profd::porter {

// End both directions of a socket that nobody else reads, and take out what holds no descriptor. True: nothing is left,
// and nothing can come, so that its close waits for nobody. False also where that cannot be told. Waits for nobody.
bool make_empty(int fd);

}  // namespace profd::porter
