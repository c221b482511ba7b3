// Datagrams received with one system call.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "datagram_queue.h"

namespace profd::host {

// Room for `kMost` datagrams, filled again and again. Of each, the sender is read first: most of a flood is no more than that.
class DatagramBatch {
 public:
  static constexpr std::size_t kMost = 32;  // the kernel's queue holds ten; more where the host allows it

  // One byte more than `datagram_bytes` is read of each.
  explicit DatagramBatch(std::size_t datagram_bytes);
  // What waits at a socket, without waiting: how many. std::system_error if the descriptor is no socket.
  std::size_t receive(int socket);
  // Who sent one of them. Closes descriptors that came with it.
  Datagram sender(std::size_t index) const;
  // The rest of what `sender` began.
  void complete(std::size_t index, Datagram& datagram) const;

 private:
  // Room for exactly these two: descriptors that a peer attaches find none and are closed by the kernel.
  static constexpr std::size_t kControl = CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(timespec));
  struct alignas(cmsghdr) Control {
    std::array<std::uint8_t, kControl> bytes;
  };

  void reset(std::size_t index);

  std::size_t room_;
  std::size_t used_ = 0;  // by the last call, which left its lengths there
  std::vector<char> data_;
  std::array<mmsghdr, kMost> messages_{};
  std::array<iovec, kMost> parts_{};
  std::array<sockaddr_storage, kMost> addresses_{};
  std::array<Control, kMost> controls_{};
};

}  // namespace profd::host
