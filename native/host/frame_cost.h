// What a frame of HTTP/2 costs gRPC, roughly, at whichever end of it.
#pragma once

#include "allowance.h"
#include "frames.h"

namespace profd::host {

// `first`: of a connection. Bulk is bounded by turns and by HTTP/2's windows.
Cost cost_of(const Frame& frame, bool first);

bool is_bulk(const Frame& frame);

}  // namespace profd::host
