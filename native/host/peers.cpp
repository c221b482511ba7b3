#include "peers.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

namespace profd::host {

namespace {

constexpr int GROUPS = 65536;  // NGROUPS_MAX of Linux

// Supplementary groups as they were at connect(), by the kernel.
bool is_member(int fd, gid_t group) {
  std::vector<gid_t> groups(32);
  for (;;) {
    socklen_t size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) == 0) {
      const auto end = groups.begin() + static_cast<std::ptrdiff_t>(size / sizeof(gid_t));
      return std::find(groups.begin(), end, group) != end;
    }
    if (errno != ERANGE || groups.size() >= GROUPS) return false;
    groups.resize(GROUPS);
  }
}

ucred credentials(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
    throw std::system_error(errno, std::generic_category(), "SO_PEERCRED");
  }
  return peer;
}

}  // namespace

Peers::Peers(gid_t admins, uid_t streamers) : own_(::geteuid()), admins_(admins), streamers_(streamers) {}

Peer Peers::of(int connection) const {
  const ucred peer = credentials(connection);
  const bool runs_it = peer.uid == 0 || peer.uid == own_;
  // A streamer may have the group of the socket, and that be the admins'.
  const gid_t admins = admins_;
  const bool may_be_admin = !runs_it && peer.uid != streamers_ && admins != NO_GROUP;
  const bool is_admin = may_be_admin && (peer.gid == admins || is_member(connection, admins));
  return {peer.pid, peer.uid, peer.gid, runs_it || is_admin};
}

bool has_group(int connection, gid_t group) {
  try {
    return credentials(connection).gid == group || is_member(connection, group);
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace profd::host
