// What the daemon says to a porter or a dropper (native/porter), in any thread.
//
// A porter does what came with descriptors when the next word comes, because only then are its copies the last. So
// nothing is said between a word with descriptors and the close of our copies.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace profd::host {

class PorterWords {
 public:
  // `control`: our end of its conversation, which others close, after `end`.
  explicit PorterWords(int control) : control_(control) {}

  // Say a word with descriptors, whose copies here are then closed, and that they are. 0, or an errno: they are still
  // the caller's.
  int hand(char word, const int* fds, std::size_t count);
  // 0, or an errno.
  int say(char word);
  // Nothing more is said.
  void end();

 private:
  std::mutex mutex_;
  int control_;
};

// Who closes what nobody takes, for each user: a process that may wait (native/porter/dropper.cpp).
class Droppers {
 public:
  // Of this user from now on; null: nobody.
  void use(uid_t uid, std::shared_ptr<PorterWords> words);
  // Have it closed. 0, or an errno: it is still the caller's.
  int drop(uid_t uid, int fd);

 private:
  std::mutex mutex_;
  std::unordered_map<uid_t, std::shared_ptr<PorterWords>> words_;
};

}  // namespace profd::host
