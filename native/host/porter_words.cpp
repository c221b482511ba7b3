#include "porter_words.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace profd::host {

namespace {

constexpr std::size_t SENT = 2;  // descriptors of one message
constexpr char OURS_ARE_CLOSED = 'g', DROP = 'd';

int send_word(int control, char word, const int* fds, std::size_t count) {
  iovec from{&word, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(SENT * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &from;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = room;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds, count * sizeof(int));
  }
  return ::sendmsg(control, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

}  // namespace

int PorterWords::hand(char word, const int* fds, std::size_t count) {
  if (count > SENT) return EINVAL;
  const std::lock_guard lock(mutex_);
  if (control_ < 0) return ENOTCONN;
  if (const int error = send_word(control_, word, fds, count); error != 0) return error;
  for (std::size_t at = 0; at < count; ++at) ::close(fds[at]);
  send_word(control_, OURS_ARE_CLOSED, nullptr, 0);  // where it is full, something follows
  return 0;
}

int PorterWords::say(char word) {
  const std::lock_guard lock(mutex_);
  return control_ < 0 ? ENOTCONN : send_word(control_, word, nullptr, 0);
}

void PorterWords::end() {
  const std::lock_guard lock(mutex_);
  control_ = -1;
}

void Droppers::use(uid_t uid, std::shared_ptr<PorterWords> words) {
  const std::lock_guard lock(mutex_);
  if (words) {
    words_[uid] = std::move(words);
  } else {
    words_.erase(uid);
  }
}

int Droppers::drop(uid_t uid, int fd) {
  std::shared_ptr<PorterWords> words;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = words_.find(uid); found != words_.end()) words = found->second;
  }
  return words ? words->hand(DROP, &fd, 1) : ENOTCONN;
}

}  // namespace profd::host
