#include "encoder_slots.h"

#include <algorithm>
#include <cstddef>

namespace profd::encoder {
namespace {

using arena::Kind;
using arena::Slot;

constexpr std::uint64_t kLabelBytesAt = offsetof(Slot, name);
static_assert(offsetof(Slot, payload) - kLabelBytesAt == sizeof(std::uint64_t), "a label is 8 bytes of a slot");
constexpr std::uint8_t kUnordered = arena::kAsync | arena::kBackend;

bool is_range(Kind kind) { return kind >= Kind::Range && kind <= Kind::Module; }
// Their name is no string id.
bool is_about_others(Kind kind) { return kind == Kind::Patch || kind == Kind::Thread; }
// Their times are Unix ns.
bool is_gpu(Kind kind) { return kind >= Kind::Api && kind <= Kind::Graph; }
bool is_event(Kind kind) { return kind != Kind::None && !is_about_others(kind); }

std::uint64_t label_key(const Slot& slot) {
  std::uint64_t key;
  std::memcpy(&key, reinterpret_cast<const std::uint8_t*>(&slot) + kLabelBytesAt, sizeof key);
  return key;
}

Slot unnamed(Slot slot) {
  slot.name = arena::kNoName;
  return slot;
}

// What takes the place of a slot that makes no sense.
std::uint64_t unreadable_key(std::uint8_t extensions) {
  Slot slot{};
  slot.extensions = extensions;
  return label_key(slot);
}

// Within 36 years of the base, whichever way: readers refuse chunks whose times could overflow.
bool is_near(std::uint64_t relative) { return ((relative + (std::uint64_t{1} << 60)) >> 61) == 0; }

// `value` modulo 2^64 as a signed number: times are relative and may lie before the base.
std::int64_t as_signed(std::uint64_t value) { return static_cast<std::int64_t>(value); }

}  // namespace

std::uint32_t Labels::add(std::uint64_t key, std::uint64_t strings_end) {
  Slot slot{};
  std::memcpy(reinterpret_cast<std::uint8_t*>(&slot) + kLabelBytesAt, &key, sizeof key);
  Label label{key, slot.name, static_cast<std::uint8_t>(slot.kind), slot.flags, slot.scope, slot.extensions, kOther, false};
  if (slot.kind == Kind::None || slot.kind > Kind::Graph) {
    label.form = kUnreadable;
    label.kind = 0, label.name = arena::kNoName;
  } else if (is_range(slot.kind) && (slot.flags & kUnordered) == 0) {
    label.form = kRange;
  }
  if (label.name >= strings_end) label.name = arena::kNoName, label.name_is_bad = true;
  labels_.push_back(label);
  return static_cast<std::uint32_t>(labels_.size() - 1);
}

void Labels::write(Bytes& section) const {
  section.varint(labels_.size());
  std::uint32_t before = 0;
  for (const Label& label : labels_) {
    section.svarint(std::uint64_t{label.name} - before);
    before = label.name;
  }
  for (const Label& label : labels_) section.u8(label.kind);
  for (const Label& label : labels_) section.u8(label.flags);
  for (const Label& label : labels_) section.u8(label.scope);
  for (const Label& label : labels_) section.u8(label.extensions);
}

void SlotEncoder::encode(const ChunkCopy& chunk, const ChunkClock& clock, std::uint64_t strings_end) {
  chunk_ = &chunk, clock_ = &clock, strings_end_ = strings_end;
  labels_.clear();
  attributes_.clear();
  strings_.clear();
  rows_.clear();
  nested_labels_.begin(chunk.count);
  pops_.begin(chunk.count);
  times_.begin(std::size_t{2} * chunk.count);
  open_.clear();
  moment_ = pending_pops_ = row_time_ = 0;
  gpu_time_ = static_cast<std::uint64_t>(clock.real_at_base());
  nested_ = row_count_ = other_events_ = next_slot_ = bad_slots_ = bad_attributes_ = 0;

  for (std::uint32_t at = 0; at < chunk.count;) {
    const Slot slot = chunk.slot(at);
    if (slot.extensions >= chunk.count - at) {
      // It claims what was not published: where the next event begins is anybody's guess.
      unreadable(at, labels_.number(unreadable_key(0), strings_end));
      break;
    }
    const std::uint32_t label = labels_.number(label_key(is_about_others(slot.kind) ? unnamed(slot) : slot), strings_end);
    const bool name_is_bad = labels_[label].name_is_bad;
    if (encode_slot(at, slot, label)) {
      bad_attributes_ += name_is_bad;
      if (slot.kind == Kind::Op || slot.extensions != 0) details(at, slot);
    } else {
      unreadable(at, labels_.number(unreadable_key(slot.extensions), strings_end));
    }
    at += 1u + slot.extensions;
  }
  while (!open_.empty()) pop_before(open_.back());
  for (const Labels::Label& label : labels_.all()) strings_.push_back(label.name);
}

// False: it makes no sense, and nothing of it was written.
bool SlotEncoder::encode_slot(std::uint32_t slot, const Slot& from, std::uint32_t label) {
  const Labels::Form form = labels_[label].form;
  if (form == Labels::kUnreadable) return false;
  if (form == Labels::kRange && from.end != 0) return range(slot, from, label);
  if (is_range(from.kind) && (from.flags & arena::kBackend) != 0) return backend(slot, from, label);
  return is_gpu(from.kind) ? gpu(slot, from, label) : other(slot, from, label);
}

// Where it lies within the ranges before it, in NESTED; otherwise among the others.
bool SlotEncoder::range(std::uint32_t slot, const Slot& from, std::uint32_t label) {
  const std::uint64_t start = clock_->relative(from.start), end = clock_->relative(from.end);
  if (!is_near(start) || !is_near(end)) return false;
  const bool first = nested_ == 0;
  const bool in_order = as_signed(start) <= as_signed(end) && (first || as_signed(moment_) <= as_signed(start));
  if (in_order) pop_before(start);
  if (!in_order || (!open_.empty() && as_signed(open_.back()) < as_signed(end))) {
    timed_row(slot, label, start);
    length(true, start, end);
    ++other_events_;
    return true;
  }
  nested_labels_.varint(label);
  pops_.varint(pending_pops_);
  pending_pops_ = 0;
  if (first) {
    times_.svarint(start);
  } else {
    times_.varint(start - moment_);
  }
  moment_ = start;
  open_.push_back(end);
  ++nested_;
  return true;
}

void SlotEncoder::pop_before(std::uint64_t moment) {
  while (!open_.empty() && as_signed(open_.back()) <= as_signed(moment)) {
    times_.varint(open_.back() - moment_);
    moment_ = open_.back();
    open_.pop_back();
    ++pending_pops_;
  }
}

bool SlotEncoder::other(std::uint32_t slot, const Slot& from, std::uint32_t label) {
  const std::uint64_t time = clock_->relative(from.kind == Kind::Patch ? from.end : from.start);
  const bool has_end = is_range(from.kind) && from.end != 0;
  const std::uint64_t end = has_end ? clock_->relative(from.end) : time;
  if (!is_near(time) || !is_near(end)) return false;
  timed_row(slot, label, time);
  other_events_ += is_event(from.kind);
  switch (from.kind) {
    case Kind::Instant:
      break;
    case Kind::Counter:
      rows_.f64(from.end);
      break;
    case Kind::Alloc:
      rows_.svarint(from.payload);
      rows_.varint(from.end);
      break;
    case Kind::OutOfMemory:
      rows_.svarint(from.payload);
      break;
    case Kind::Patch:
      rows_.varint(from.name);
      rows_.varint(from.start);
      rows_.varint(from.payload);
      break;
    case Kind::Thread:
      rows_.varint(from.end);
      rows_.varint(from.name < strings_end_ ? from.name : arena::kNoName);
      if (from.name < strings_end_) strings_.push_back(from.name);
      break;
    default:
      length(has_end, time, end);
  }
  return true;
}

bool SlotEncoder::backend(std::uint32_t slot, const Slot& from, std::uint32_t label) {
  std::uint64_t start, end;
  const auto real = static_cast<std::uint64_t>(clock_->real_at_base());
  if (!external_time(extension(slot, from), start, end) || !is_near(start - real) || !is_near(end - real)) return false;
  row(slot, label);
  rows_.svarint(start - real);
  length(true, start, end);
  ++other_events_;
  return true;
}

bool SlotEncoder::gpu(std::uint32_t slot, const Slot& from, std::uint32_t label) {
  const auto real = static_cast<std::uint64_t>(clock_->real_at_base());
  if (!is_near(from.start - real) || !is_near(from.end - real)) return false;
  row(slot, label);
  rows_.svarint(from.start - gpu_time_);
  gpu_time_ = from.start;
  length(true, from.start, from.end);
  ++other_events_;
  return true;
}

void SlotEncoder::unreadable(std::uint32_t slot, std::uint32_t label) {
  row(slot, label);
  ++bad_slots_;
}

void SlotEncoder::row(std::uint32_t slot, std::uint32_t label) {
  rows_.varint(slot - next_slot_);
  rows_.varint(label);
  next_slot_ = slot + 1;
  ++row_count_;
}

void SlotEncoder::timed_row(std::uint32_t slot, std::uint32_t label, std::uint64_t time) {
  row(slot, label);
  rows_.svarint(time - row_time_);
  row_time_ = time;
}

void SlotEncoder::length(bool ended, std::uint64_t start, std::uint64_t end) {
  // The longest length there is, and 0, stand for something else.
  rows_.varint(ended ? 1 + std::min(zigzag(end - start), ~std::uint64_t{1}) : 0);
}

void SlotEncoder::details(std::uint32_t slot, const Slot& from) {
  if (from.kind == Kind::Op && from.payload != 0) attributes_.payload(slot, from.payload);
  if (from.extensions == 0 || !is_event(from.kind)) return;
  if (!attributes_.extension(slot, extension(slot, from), strings_end_, strings_)) ++bad_attributes_;
}

std::string_view SlotEncoder::extension(std::uint32_t slot, const Slot& from) const {
  return {reinterpret_cast<const char*>(chunk_->slots) + (std::size_t{slot} + 1) * sizeof(Slot),
          std::size_t{from.extensions} * sizeof(Slot)};
}

void SlotEncoder::write(Bytes& body, std::uint32_t strings_cut) {
  section_.clear();
  labels_.write(section_);
  body.section(kLabels, section_);
  if (nested_ != 0) write_nested(body);
  if (row_count_ != 0) write_others(body);
  attributes_.write(body);
  write_losses(body, strings_cut);
}

void SlotEncoder::write_nested(Bytes& body) {
  section_.clear();
  section_.varint(nested_);
  section_.varint(nested_labels_.size());
  section_.varint(pops_.size());
  for (const Column* column : {&nested_labels_, &pops_, &times_}) section_.append(column->bytes());
  body.section(kNested, section_);
}

void SlotEncoder::write_others(Bytes& body) {
  section_.clear();
  section_.varint(row_count_);
  section_.append(rows_);
  body.section(kOthers, section_);
}

void SlotEncoder::write_losses(Bytes& body, std::uint32_t strings_cut) {
  const std::pair<std::string_view, std::uint32_t> losses[] = {
      {"bad_slot", bad_slots_}, {"bad_attribute", bad_attributes_}, {"strings_cut", strings_cut}};
  section_.clear();
  std::uint32_t kinds = 0;
  for (const auto& [reason, count] : losses) kinds += count != 0;
  if (kinds == 0) return;
  section_.varint(kinds);
  for (const auto& [reason, count] : losses) {
    if (count == 0) continue;
    section_.varint(reason.size());
    section_.append(reason);
    section_.varint(count);
  }
  body.section(kLosses, section_);
}

}  // namespace profd::encoder
