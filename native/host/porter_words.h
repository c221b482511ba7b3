// What the daemon says to a porter (native/porter), in any thread.
//
// A porter does what came with descriptors when the next word comes, because only then are its copies the last. So
// nothing is said between a word with descriptors and the close of our copies.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

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

// The porter that closes what nobody takes; another one when it is given up.
class Dropper {
 public:
  void use(std::shared_ptr<PorterWords> words);
  // Have it closed. 0, or an errno: it is still the caller's.
  int drop(int fd);

 private:
  std::mutex mutex_;
  std::shared_ptr<PorterWords> words_;
};

}  // namespace profd::host
