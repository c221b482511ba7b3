#include "frame_cost.h"

#include <algorithm>

namespace profd::host {

namespace {

constexpr double SMALL_DATA = 1024;
constexpr double HEADER_PIECE = 64, OTHER_PIECE = 256;  // bytes that cost as much as a frame

// By their length: a byte can be a whole header, and no window of HTTP/2 bounds them.
double header_work(const Frame& frame) { return 1 + frame.length / HEADER_PIECE; }

}  // namespace

Cost cost_of(const Frame& frame, bool first) {
  if (first) return {1, 10};  // a connection
  switch (frame.type) {
    case HEADERS:
      return {1, header_work(frame)};
    case DATA:
      // The larger, the less: bulk costs its copying, and there is no size from which on frames are for nothing.
      return {0, std::min(1.0, SMALL_DATA / std::max<double>(frame.length, 1))};
    case CONTINUATION:
      return {0, header_work(frame)};
    case WINDOW_UPDATE:
      return {0, 1};
    default:  // PING, SETTINGS, RST_STREAM, PRIORITY: each is answered, or ends something. SETTINGS are many in one
      return {0, 10 + frame.length / OTHER_PIECE};
  }
}

bool is_bulk(const Frame& frame) { return frame.type == DATA && frame.length >= SMALL_DATA; }

}  // namespace profd::host
