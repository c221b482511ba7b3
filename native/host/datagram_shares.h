// Senders that say more in a second than there is to say.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace profd::host {

struct ShareLimits {
  std::uint32_t of_process;  // datagrams a second
  std::uint32_t of_user;
  std::size_t processes;  // told apart in a second; of those after them only the user's are counted
  std::size_t users;      // told apart in a second; those after them share one part
};

// Counts datagrams by process and by user, as the kernel names them, each second anew.
class Shares {
 public:
  explicit Shares(const ShareLimits& limits);
  // Counts one more; whether it is one too many.
  bool beyond(pid_t pid, uid_t uid, std::int64_t now_ns);

 private:
  std::uint32_t* of_user(uid_t uid);
  bool process_beyond(pid_t pid);

  ShareLimits limits_;
  std::int64_t began_ns_ = 0;
  std::unordered_map<pid_t, std::uint32_t> pids_;
  std::unordered_map<uid_t, std::uint32_t> uids_;
  std::uint32_t others_ = 0;
};

}  // namespace profd::host
