// The slots of a copied chunk to the body of a wire chunk. docs/wire-format.md says what it looks like.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder_arena.h"
#include "encoder_attributes.h"
#include "encoder_bytes.h"
#include "encoder_clock.h"

namespace profd::encoder {

// What a slot holds but for its times: 8 of its bytes as they are. Each gets a number per chunk.
class Labels {
 public:
  enum Form : std::uint8_t { kUnreadable, kRange, kOther };
  struct Label {
    std::uint64_t key;
    std::uint32_t name;
    std::uint8_t kind, flags, scope, extensions;
    Form form;
    bool name_is_bad;
  };

  void clear() { ++turn_, labels_.clear(); }
  // The number of a slot's label; names at or beyond `strings_end` are none.
  std::uint32_t number(std::uint64_t key, std::uint64_t strings_end) {
    std::size_t at = (key * 0x9E3779B97F4A7C15u) >> (64 - kBits);
    for (; table_[at].turn == turn_; at = (at + 1) % kSlots) {
      if (table_[at].key == key) return table_[at].number;
    }
    table_[at] = {key, turn_, add(key, strings_end)};
    return table_[at].number;
  }
  const Label& operator[](std::uint32_t number) const { return labels_[number]; }
  const std::vector<Label>& all() const { return labels_; }
  void write(Bytes& section) const;

 private:
  static constexpr unsigned kBits = 12;  // twice what a chunk can need
  static constexpr std::size_t kSlots = 1 << kBits;
  struct Entry {
    std::uint64_t key;
    std::uint32_t turn, number;
  };

  std::uint32_t add(std::uint64_t key, std::uint64_t strings_end);

  std::uint32_t turn_ = 0;
  std::vector<Entry> table_ = std::vector<Entry>(kSlots);
  std::vector<Label> labels_;
};

class SlotEncoder {
 public:
  // Encodes everything but STRINGS. `strings_end`: ids at or beyond it do not exist.
  void encode(const ChunkCopy& chunk, const ChunkClock& clock, std::uint64_t strings_end);

  std::uint32_t events() const { return nested_ + other_events_; }
  const std::vector<std::uint32_t>& strings() const { return strings_; }  // ids that it names, with duplicates
  // Appends the sections; `strings_cut`: texts that the caller had to cut.
  void write(Bytes& body, std::uint32_t strings_cut);

 private:
  bool encode_slot(std::uint32_t slot, const arena::Slot& from, std::uint32_t label);
  bool range(std::uint32_t slot, const arena::Slot& from, std::uint32_t label);
  void pop_before(std::uint64_t moment);
  bool other(std::uint32_t slot, const arena::Slot& from, std::uint32_t label);
  bool backend(std::uint32_t slot, const arena::Slot& from, std::uint32_t label);
  bool gpu(std::uint32_t slot, const arena::Slot& from, std::uint32_t label);
  void unreadable(std::uint32_t slot, std::uint32_t label);
  void row(std::uint32_t slot, std::uint32_t label);
  void timed_row(std::uint32_t slot, std::uint32_t label, std::uint64_t time);
  void length(bool ended, std::uint64_t start, std::uint64_t end);
  void details(std::uint32_t slot, const arena::Slot& from);
  std::string_view extension(std::uint32_t slot, const arena::Slot& from) const;
  void write_nested(Bytes& body);
  void write_others(Bytes& body);
  void write_losses(Bytes& body, std::uint32_t strings_cut);

  const ChunkCopy* chunk_ = nullptr;
  const ChunkClock* clock_ = nullptr;
  std::uint64_t strings_end_ = 0;
  Labels labels_;
  Attributes attributes_;
  std::vector<std::uint32_t> strings_;
  Bytes section_;

  // NESTED. `open_` are the ends of the ranges that are open, innermost last; `moment_` the last one written.
  Column nested_labels_, pops_, times_;
  std::vector<std::uint64_t> open_;
  std::uint64_t moment_ = 0, pending_pops_ = 0;
  std::uint32_t nested_ = 0;

  // OTHERS
  Bytes rows_;
  std::uint32_t row_count_ = 0, other_events_ = 0, next_slot_ = 0;
  std::uint64_t row_time_ = 0, gpu_time_ = 0;

  std::uint32_t bad_slots_ = 0, bad_attributes_ = 0;
};

}  // namespace profd::encoder
