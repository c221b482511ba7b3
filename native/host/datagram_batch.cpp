#include "datagram_batch.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace profd::host {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;

template <typename Value>
bool read(const cmsghdr* header, Value& value) {
  if (header->cmsg_len != CMSG_LEN(sizeof(Value))) return false;
  std::memcpy(&value, CMSG_DATA(header), sizeof(Value));
  return true;
}

void close_all(const cmsghdr* header) {
  const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t index = 0; index < count; ++index) {
    int descriptor;
    std::memcpy(&descriptor, CMSG_DATA(header) + index * sizeof(int), sizeof(int));
    ::close(descriptor);
  }
}

}  // namespace

DatagramBatch::DatagramBatch(std::size_t datagram_bytes) : room_(datagram_bytes + 1), data_(kMost * room_) {
  for (std::size_t index = 0; index < kMost; ++index) {
    parts_[index] = {data_.data() + index * room_, room_};
    msghdr& header = messages_[index].msg_hdr;
    header.msg_iov = &parts_[index];
    header.msg_iovlen = 1;
    header.msg_name = &addresses_[index];
    header.msg_control = &controls_[index];
    reset(index);
  }
}

void DatagramBatch::reset(std::size_t index) {
  msghdr& header = messages_[index].msg_hdr;
  header.msg_namelen = sizeof(addresses_[index]);
  header.msg_controllen = sizeof(controls_[index].bytes);
}

std::size_t DatagramBatch::receive(int socket) {
  for (std::size_t index = 0; index < used_; ++index) reset(index);
  used_ = 0;
  const int received = ::recvmmsg(socket, messages_.data(), kMost, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, nullptr);
  if (received >= 0) return used_ = static_cast<std::size_t>(received);
  if (errno == EBADF || errno == ENOTSOCK) throw std::system_error(errno, std::generic_category(), "recvmmsg");
  return 0;
}

Datagram DatagramBatch::sender(std::size_t index) const {
  // CMSG_NXTHDR wants a header that may be written, and writes nothing.
  auto* const header = const_cast<msghdr*>(&messages_[index].msg_hdr);
  Datagram datagram;
  datagram.attached = (header->msg_flags & MSG_CTRUNC) != 0;
  datagram.truncated = (header->msg_flags & MSG_TRUNC) != 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(header); part != nullptr; part = CMSG_NXTHDR(header, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    ucred credentials;
    timespec sent;
    if (part->cmsg_type == SCM_CREDENTIALS && read(part, credentials)) {
      datagram.pid = credentials.pid;
      datagram.uid = credentials.uid;
      datagram.gid = credentials.gid;
    } else if (part->cmsg_type == SCM_TIMESTAMPNS && read(part, sent)) {
      datagram.sent_ns = sent.tv_sec * kSecondNs + sent.tv_nsec;
    } else if (part->cmsg_type == SCM_RIGHTS) {
      datagram.attached = true;
      close_all(part);
    }
  }
  return datagram;
}

void DatagramBatch::complete(std::size_t index, Datagram& datagram) const {
  const mmsghdr& message = messages_[index];
  datagram.data.assign(data_.data() + index * room_, message.msg_len);
  const std::size_t length = message.msg_hdr.msg_namelen;
  if (length <= offsetof(sockaddr_un, sun_path) || length > sizeof(sockaddr_storage)) return;
  const char* path = reinterpret_cast<const char*>(&addresses_[index]) + offsetof(sockaddr_un, sun_path);
  const std::size_t room = length - offsetof(sockaddr_un, sun_path);
  datagram.address.assign(path, path[0] == '\0' ? room : ::strnlen(path, room));
}

}  // namespace profd::host
