// A filter on senders that the kernel runs before a socket's queue: who has said too much takes no place there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace profd::host {

struct FilterLimits {
  std::uint32_t of_process;  // datagrams a second, tries of sending one included
  std::uint32_t of_user;
  std::uint32_t remembered;  // processes, and as many users; whoever is forgotten begins at nothing
};

// An eBPF program (BPF_PROG_TYPE_SOCKET_FILTER) and its maps. Each second is counted anew. A datagram beyond the limits is
// dropped and counted while its sender is told that it was sent, as for every socket filter. The program stays with
// its sockets after `~SenderFilter`, and goes with the last of them.
class SenderFilter {
 public:
  // std::system_error, its text the call that was refused: EPERM without CAP_BPF, EINVAL where the kernel has no such programs.
  // `by_user` false: processes alone are counted, for kernels that do not say whose a process is (before Linux 6.16).
  SenderFilter(const FilterLimits& limits, bool by_user);
  ~SenderFilter();
  SenderFilter(const SenderFilter&) = delete;
  SenderFilter& operator=(const SenderFilter&) = delete;

  // Needs no capability. std::system_error if the descriptor is no socket.
  void attach(int socket) const;
  // Datagrams, of all its sockets. Asks the kernel nothing.
  std::uint64_t dropped() const;
  int program() const { return program_; }

 private:
  int program_ = -1;
  const std::uint64_t* dropped_ = nullptr;  // a page of the map
};

}  // namespace profd::host
