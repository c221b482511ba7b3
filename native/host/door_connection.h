// One connection through the door: a client's socket, gRPC's, and what is between them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "allowance.h"
#include "frames.h"

namespace profd::host {

struct User;

// Bytes on their way in one direction. There is memory only while there are any.
class Buffer {
 public:
  static constexpr std::size_t CAPACITY = 64 * 1024;

  std::size_t bytes() const { return end_ - begin_; }
  std::size_t room() const { return CAPACITY - bytes(); }
  const std::uint8_t* data() const { return memory_.get() + begin_; }
  // Memory for `room()` more; `add` says how much of it was used.
  std::uint8_t* space();
  void add(std::size_t bytes) { end_ += bytes; }
  void append(const std::uint8_t* data, std::size_t bytes);
  void drop(std::size_t bytes) { begin_ += bytes; }
  void drop_all() { begin_ = end_ = 0; }
  void settle();  // gives the memory back when nothing is left

 private:
  std::unique_ptr<std::uint8_t[]> memory_;
  std::size_t begin_ = 0, end_ = 0;
};

// A socket, and what it was last seen to be ready for (epoll tells only of changes).
class End {
 public:
  ~End();
  void open(int fd) { fd_ = fd; }
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void notice(std::uint32_t events);

  bool may_read() const { return is_open() && readable_ && !ended_; }
  bool may_write() const { return is_open() && writable_; }
  bool ended() const { return ended_; }    // nothing more comes
  bool broken() const { return broken_; }  // nothing more is taken
  bool gone() const { return gone_; }      // the other end was closed altogether
  void read_into(Buffer& buffer);
  // Sends from the front; how much it took.
  std::size_t write_from(const Buffer& buffer, std::size_t bytes);
  void say_end();

 private:
  int fd_ = -1;
  bool readable_ = false, writable_ = true, ended_ = false, broken_ = false, gone_ = false, hung_up_ = false, said_ = false;
};

enum class Why { NONE, OPEN_PER_USER, OPEN_ON_HOST };  // it was turned away

struct Connection {
  std::uint64_t id = 0;
  User* user = nullptr;
  End client, server;
  Buffer up, down;          // to the server, to the client
  std::size_t cleared = 0;  // bytes at the front of `up` that may go
  Frames frames;
  Why turned_away = Why::NONE;
  bool carried = false;  // `client` is of a pair with who reads it, and says nothing of the peer
  bool begun = false;    // its first frame has passed
  bool queued = false;   // for a turn
  bool unreached = false;  // gRPC's queue was full
  bool waiting = false;  // for its user's allowance, or the host's
  bool granted = false;  // what it waited for
  Cost cost;
  std::optional<Time> deadline;
  std::optional<Time> block_deadline;  // of the header block that has begun

  bool may_go() const;
};

}  // namespace profd::host
