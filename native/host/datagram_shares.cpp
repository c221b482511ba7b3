#include "datagram_shares.h"

namespace profd::host {
namespace {

constexpr std::int64_t kWindowNs = 1'000'000'000;

}  // namespace

Shares::Shares(const ShareLimits& limits) : limits_(limits) {
  pids_.reserve(limits.processes);  // a table that grows would hold up the drain in the midst of a flood
  uids_.reserve(limits.users);
}

bool Shares::beyond(pid_t pid, uid_t uid, std::int64_t now_ns) {
  if (now_ns - began_ns_ >= kWindowNs) {
    began_ns_ = now_ns;
    pids_.clear();
    uids_.clear();
    others_ = 0;
  }
  std::uint32_t& user = *of_user(uid);
  // Before the process: a user whose part is spent takes no place in the table.
  if (user >= limits_.of_user) return true;
  if (process_beyond(pid)) return true;  // and its user's others are not to suffer for it
  ++user;
  return false;
}

std::uint32_t* Shares::of_user(uid_t uid) {
  const auto found = uids_.find(uid);
  if (found != uids_.end()) return &found->second;
  return uids_.size() < limits_.users ? &uids_[uid] : &others_;
}

bool Shares::process_beyond(pid_t pid) {
  const auto found = pids_.find(pid);
  if (found != pids_.end()) return found->second >= limits_.of_process || (++found->second, false);
  if (pids_.size() < limits_.processes) pids_[pid] = 1;
  return false;
}

}  // namespace profd::host
