// A descriptor of ours in somebody else's process. Programs that become daemons close every descriptor they do not
// know, and the number is then another file's: reading, writing or closing that would harm the job.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace profd {

// Programs expect the lowest numbers for their own next files. Not 64 or more: there the kernel enlarges the process's
// table of descriptors, which is memory, and with several threads a wait of milliseconds.
constexpr int kFirstDescriptor = 48;

// The same file at a number that is out of the program's way; where RLIMIT_NOFILE has none, at the one that it has.
inline int moved_up(int number) {
  if (number < 0 || number >= kFirstDescriptor) return number;
  const int moved = fcntl(number, F_DUPFD_CLOEXEC, kFirstDescriptor);
  if (moved < 0) return number;
  close(number);
  return moved;
}

class Descriptor {
 public:
  int number() const { return number_; }
  bool open() const { return number_ >= 0; }

  // Of a file that is close-on-exec; its number may change.
  void take(int number) {
    struct stat found;
    number_ = moved_up(number);
    if (number_ >= 0 && fstat(number_, &found) == 0) {
      device_ = found.st_dev;
      inode_ = found.st_ino;
    }
  }

  // Whether the number still stands for the file that was taken.
  bool ours() const {
    struct stat found;
    return number_ >= 0 && fstat(number_, &found) == 0 && found.st_dev == device_ && found.st_ino == inode_;
  }

  void close() {  // async-signal-safe
    if (ours()) ::close(number_);
    number_ = -1;
  }

 private:
  int number_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace profd
