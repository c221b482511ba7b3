#include "chrome_tracks.h"

#include <utility>

namespace profd::scan {

ChromeTracks::Place ChromeTracks::find(std::string_view pid, std::string_view tid) {
  const std::size_t guess = (tid.empty() ? 0u : static_cast<unsigned char>(tid.back()) + 4u * tid.size()) +
                            (pid.empty() ? 0u : 5u * static_cast<unsigned char>(pid.back()));
  Recent& recent = recent_[guess % recent_.size()];
  if (recent.place.thread >= 0 && recent.tid == tid && recent.pid == pid) return recent.place;

  if (process_ids_.size() + thread_ids_.size() + 2 > limit_) return {-1, -1};
  const std::int32_t process = process_ids_.code(pid);
  if (process < 0) return {-1, -1};
  std::string key = std::to_string(process) + ' ';
  key += tid;
  const std::size_t before = thread_ids_.size();
  const std::int32_t thread = thread_ids_.code(key);
  if (thread < 0) return {-1, -1};
  if (thread_ids_.size() > before) fresh_.push_back({process, std::string(tid)});
  recent = {std::string(pid), std::string(tid), {process, thread}};
  return recent.place;
}

std::vector<ChromeTracks::Thread> ChromeTracks::take_threads() { return std::exchange(fresh_, {}); }

}  // namespace profd::scan
