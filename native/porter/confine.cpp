#include "confine.h"

#include <cerrno>
#include <csignal>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace profd::porter {
namespace {

bool limit(int what, rlim_t value) {
  rlimit found{};
  if (::getrlimit(static_cast<__rlimit_resource>(what), &found) != 0) return false;
  if (found.rlim_max < value) value = found.rlim_max;
  const rlimit wanted{value, value};
  return ::setrlimit(static_cast<__rlimit_resource>(what), &wanted) == 0;
}

bool become(long uid, long gid) {
  const auto user = static_cast<uid_t>(uid);
  const auto group = static_cast<gid_t>(gid);
  return ::setgroups(0, nullptr) == 0 && ::setresgid(group, group, group) == 0 && ::setresuid(user, user, user) == 0;
}

}  // namespace

bool drop_privileges(long uid, long gid, rlim_t descriptors) {
  const pid_t parent = ::getppid();
  // The daemon ends it; whoever sends SIGTERM to all of a service, or SIGINT to all of a terminal, does not.
  constexpr int kIgnored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  for (const int number : kIgnored) std::signal(number, SIG_IGN);
  if (::prctl(PR_SET_DUMPABLE, 0) != 0) return false;
  if (!limit(RLIMIT_CORE, 0) || !limit(RLIMIT_FSIZE, 0) || !limit(RLIMIT_NOFILE, descriptors)) return false;
  if (uid >= 0 && !become(uid, gid)) return false;
  // A change of identity has cleared it. Where the daemon has ended before, nobody would send it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) return false;
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

bool filter_calls(void* program, long bytes) {
  if (bytes == 0) return true;
  const sock_fprog filter{static_cast<unsigned short>(bytes / sizeof(sock_filter)), static_cast<sock_filter*>(program)};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 || errno == EINVAL;  // a kernel without filters
}

}  // namespace profd::porter
