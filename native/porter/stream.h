// One connection of a caller and the pair to the daemon: bytes go both ways, and no descriptor does.
//
// Bytes are looked at, sent as far as there is room, and only then taken away, so that none ever lies here. What was
// passed with them is dropped when they are taken, which may wait. Each direction ends by itself.
#pragma once

#include "relay.h"

namespace profd::porter {

// Move what can be moved now, a bounded number of pieces.
Next step_stream(Relay& relay);

}  // namespace profd::porter
