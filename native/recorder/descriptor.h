// A descriptor of ours in somebody else's process. Programs that become daemons close every descriptor they do not
// know, and the number is then another file's: reading, writing or closing that would harm the job.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

namespace profd {

class Descriptor {
 public:
  int number() const { return number_; }
  bool open() const { return number_ >= 0; }

  void take(int number) {
    struct stat found;
    number_ = number;
    if (number >= 0 && fstat(number, &found) == 0) {
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
