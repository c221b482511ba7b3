// Whose a connection is, by the kernel, and whether limits hold for them.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace profd::host {

inline constexpr gid_t NO_GROUP = static_cast<gid_t>(-1);

struct Peer {
  pid_t pid;
  uid_t uid;
  gid_t gid;
  bool free;  // who runs the host, or this daemon
};

class Peers {
 public:
  // Members of `admins` (NO_GROUP: there are none) are free, as root is; `streamers` never by a group.
  Peers(gid_t admins, uid_t streamers);

  // Whose members are free from now on. In any thread.
  void set_admins(gid_t admins) { admins_ = admins; }
  // As they were at connect(). Throws std::system_error. In any thread.
  Peer of(int connection) const;
  // Whether no group is asked of this uid: root, who runs the daemon, and streamers.
  bool needs_no_group(uid_t uid) const { return uid == 0 || uid == own_ || uid == streamers_; }

 private:
  const uid_t own_;
  std::atomic<gid_t> admins_;
  const uid_t streamers_;
};

// Whether the peer had this group at connect(), as its first one or beside that.
bool has_group(int connection, gid_t group);

}  // namespace profd::host
