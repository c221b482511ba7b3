// HTTP/2's frames, as far as it takes to count them: a client sends a preface, and either side frames of a header of nine
// bytes and a body. Within a body nothing is looked at but how many fields a header block has. What belongs to one header
// block (HEADERS, then CONTINUATION until one says that it is the last) is added up: who reads it keeps all of it until
// its end has come.
#pragma once

#include <cstddef>
#include <cstdint>

#include "header_fields.h"

namespace profd::host {

enum FrameType : std::uint8_t { DATA = 0, HEADERS = 1, SETTINGS = 4, WINDOW_UPDATE = 8, CONTINUATION = 9 };

struct Frame {
  std::uint32_t length;
  std::uint8_t type;
  std::uint8_t flags;
  std::uint32_t stream;
};

// Untrusted bytes of one side, in pieces cut anywhere. The caller keeps what has not been passed.
class Frames {
 public:
  enum class Of { CLIENT, SERVER };
  explicit Frames(Of side = Of::CLIENT) : preface_(side == Of::CLIENT ? PREFACE_BYTES : 0) {}

  enum class Next {
    BYTES,    // `size` bytes belong to what was passed before: the preface or a body
    HEADER,   // `frame` begins here; `pass_header` lets its HEADER_BYTES through
    MORE,     // too few to tell
    FOREIGN,  // this is no HTTP/2
  };
  static constexpr std::size_t HEADER_BYTES = 9;

  // What stands at the front of these bytes.
  Next look(const std::uint8_t* data, std::size_t bytes);
  // These, of those that `look` called BYTES, are passed.
  void pass(const std::uint8_t* data, std::size_t bytes);
  void pass_header();

  bool begun() const { return preface_ == 0; }  // the whole preface has been passed
  // A header block has begun, and the last byte of it has not been passed.
  bool in_block() const { return block_stream_ != 0; }
  // Bytes of the block that `frame` begins or goes on with, its own among them; 0 where it is of none.
  std::size_t block_bytes() const;
  // Fields of the block whose bytes were passed last.
  std::size_t block_fields() const { return fields_.count(); }

  Frame frame{};
  std::size_t size = 0;

 private:
  static constexpr std::size_t PREFACE_BYTES = 24;
  std::size_t preface_;                  // bytes of it that are still to come
  std::uint32_t body_ = 0;               // of the frame that was passed last
  std::uint32_t block_stream_ = 0;       // whose header block has not ended; 0: none
  std::size_t block_ = 0;                // bytes of it, in frames that were passed
  HeaderFields fields_;
  std::size_t priority_ = 0;             // bytes of one that are still to come, in front of the fields
  bool block_ends_ = false;              // with the body of the frame that was passed last
  bool first_ = true;

  void count_fields(const std::uint8_t* data, std::size_t bytes);
  void end_block();
};

}  // namespace profd::host
