#include "chunk_reader.h"

#include <algorithm>

namespace profd::scan {
namespace {

// Codes of `cat`: the list that daemon/profd/decode/chunks.py begins its dictionary with.
enum Cat : std::int32_t {
  kCpuOp, kUserAnnotation, kPythonFunction, kInstantEvent, kCudaRuntime, kCudaDriver, kKernelCat, kGpuMemcpy,
  kGpuMemset, kCudaSync, kOverheadCat,
};

struct Meaning {
  Kind kind;
  std::int32_t cat;
  char phase;
};

Meaning meaning(const Label& label, std::string_view name) {
  switch (label.kind) {
    case SlotKind::kRange:
      return {Kind::kUserAnnotation, kUserAnnotation, 'X'};
    case SlotKind::kOp:
      return {Kind::kCpuOp, kCpuOp, 'X'};
    case SlotKind::kPyCall:
    case SlotKind::kCCall:
    case SlotKind::kModule:
      return {Kind::kPythonFunction, kPythonFunction, 'X'};
    case SlotKind::kInstant:
      return {Kind::kInstant, kInstantEvent, 'i'};
    case SlotKind::kCounter:
      return {Kind::kCounter, kNoCode, 'C'};
    case SlotKind::kAlloc:
    case SlotKind::kOutOfMemory:
      return {Kind::kMemory, kInstantEvent, 'i'};
    case SlotKind::kApi:
      if (name.starts_with("cu") && !name.starts_with("cuda")) return {Kind::kDriver, kCudaDriver, 'X'};
      return {Kind::kRuntime, kCudaRuntime, 'X'};
    case SlotKind::kKernel:
    case SlotKind::kGraph:
      return {Kind::kKernel, kKernelCat, 'X'};
    case SlotKind::kMemcpy:
      return {Kind::kMemcpy, kGpuMemcpy, 'X'};
    case SlotKind::kMemset:
      return {Kind::kMemset, kGpuMemset, 'X'};
    case SlotKind::kSync:
      return {Kind::kSync, kCudaSync, 'X'};
    case SlotKind::kOverhead:
      return {Kind::kOverhead, kOverheadCat, 'X'};
    default:
      return {Kind::kOther, kNoCode, 'X'};
  }
}

// For events that have no name of their own: what torch calls them.
std::string_view default_name(const Label& label) {
  if (label.name != 0) return "?";  // it has one, but that never came
  return label.kind == SlotKind::kAlloc ? "[memory]" : label.kind == SlotKind::kOutOfMemory ? "[OutOfMemory]" : "";
}

}  // namespace

ChunkReader::ChunkReader(const ChunkLimits& limits)
    : budget_{limits.dictionary_bytes}, names(budget_), modules(budget_), stacks(budget_), inputs(budget_), args(budget_),
      limits_(limits), ends_(0, EventHash{hash_seed()}) {}

std::vector<std::pair<std::int32_t, std::uint64_t>> ChunkReader::take_threads() { return std::exchange(new_threads_, {}); }

std::vector<std::pair<std::int32_t, std::string>> ChunkReader::take_thread_names() {
  return std::exchange(new_thread_names_, {});
}

std::vector<std::pair<bool, std::uint64_t>> ChunkReader::take_processes() { return std::exchange(new_processes_, {}); }

std::int32_t ChunkReader::process(bool gpu, std::uint64_t id) {
  const std::pair key{gpu, id};
  const auto found = process_numbers_.find(key);
  if (found != process_numbers_.end()) return found->second;
  if (process_numbers_.size() >= limits_.tracks) {
    ++counted["processes_dropped"];
    return -1;
  }
  const auto number = static_cast<std::int32_t>(process_numbers_.size());
  process_numbers_.emplace(key, number);
  new_processes_.push_back(key);
  return number;
}

std::int32_t ChunkReader::thread(std::int32_t process, std::uint64_t tid) {
  if (process < 0) return -1;
  const std::pair key{process, tid};
  const auto found = thread_numbers_.find(key);
  if (found != thread_numbers_.end()) return found->second;
  if (thread_numbers_.size() >= limits_.tracks) {
    ++counted["threads_dropped"];
    return -1;
  }
  const auto number = static_cast<std::int32_t>(thread_numbers_.size());
  thread_numbers_.emplace(key, number);
  new_threads_.push_back(key);
  return number;
}

std::optional<std::pair<std::int64_t, bool>> ChunkReader::index(const ChunkPlace& place, std::string_view body) {
  if (place.space >= spaces_.size()) spaces_.resize(place.space + std::size_t{1});
  if (!body_.split(body) || !read_labels(body_[kLabelsSection], labels_)) return {};
  if (!read_others(body_[kOthersSection], labels_, place.slots, others_)) return {};
  if (body_.has(kStringsSection) && !read_strings(place, body_[kStringsSection])) return {};
  if (body_.has(kLossesSection) && !read_losses(body_[kLossesSection])) return {};
  const std::int32_t in = process(false, place.pid);
  std::int32_t on = thread(in, place.tid);
  for (const OtherRow& row : others_) {
    const SlotKind kind = labels_[row.label].kind;
    if (kind == SlotKind::kThread) on = thread(in, row.a);
    if (kind != SlotKind::kPatch) continue;
    if (ends_.size() >= limits_.open_events) {
      ++counted["too_many_open"];
      continue;
    }
    const EventKey key{std::uint64_t{place.space} << 32 | static_cast<std::uint32_t>(row.a), row.b, row.c};
    if (row.a > UINT32_MAX || !ends_.try_emplace(key, End{place.start + row.time, on}).second) ++counted["unmatched_end"];
  }
  const auto is_open = [](const Label& label) { return (label.flags & kOpenAtStartFlag) != 0; };
  return std::pair{earliest(place), std::any_of(labels_.begin(), labels_.end(), is_open)};
}

// Of NESTED the first start comes before all others, if that section is in order at all.
std::int64_t ChunkReader::earliest(const ChunkPlace& place) const {
  std::int64_t first = kTimeMax;
  for (const OtherRow& row : others_) first = std::min(first, row.time);
  Cursor nested(body_[kNestedSection]);
  if (body_.has(kNestedSection) && nested.varint() != 0) {
    const std::uint64_t label_bytes = nested.varint(), pop_bytes = nested.varint();
    nested.bytes(label_bytes), nested.bytes(pop_bytes);
    const std::uint64_t moment = nested.svarint();
    if (in_time(moment)) first = std::min(first, static_cast<std::int64_t>(moment));
  }
  return place.start + first;
}

bool ChunkReader::read_strings(const ChunkPlace& place, std::string_view section) {
  Cursor cursor(section);
  std::vector<std::uint32_t> ids(cursor.count(2));
  std::vector<std::uint64_t> lengths(ids.size());
  std::uint64_t id = 0;
  for (auto& each : ids) {
    id += cursor.varint();
    if (id > UINT32_MAX) return false;
    each = static_cast<std::uint32_t>(id);
  }
  for (auto& length : lengths) length = cursor.varint();
  auto& strings = spaces_[place.space];
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string_view text = cursor.bytes(lengths[i]);
    if (cursor.bad()) return false;
    constexpr std::size_t kEntry = 96;  // what it takes beside its bytes
    if (strings.contains(ids[i])) continue;
    if (text.size() + kEntry > budget_.left) {
      ++counted["names_dropped"];
      continue;
    }
    budget_.left -= text.size() + kEntry;
    strings[ids[i]].text = text;
  }
  return cursor.done();
}

bool ChunkReader::read_losses(std::string_view section) {
  constexpr std::size_t kReasonBytesMax = 64, kReasonsMax = 64;
  Cursor cursor(section);
  std::vector<std::pair<std::string, std::uint64_t>> found(cursor.count(2));
  for (auto& [reason, count] : found) {
    reason = cursor.bytes(cursor.varint());
    count = cursor.varint();
    // A reason becomes a label of metrics and a word in a sentence.
    const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    if (reason.size() > kReasonBytesMax || !std::all_of(reason.begin(), reason.end(), is_plain)) return false;
  }
  if (cursor.bad() || !cursor.done()) return false;
  for (const auto& [reason, count] : found) {
    if (lost.size() >= kReasonsMax && !lost.contains(reason)) continue;
    std::uint64_t& total = lost[reason];
    total = total + count < total ? UINT64_MAX : total + count;
  }
  return true;
}

// The code of a string in a dictionary; kNoCode for id 0, and for what never came.
std::int32_t ChunkReader::text(std::uint32_t space, std::uint32_t id, Dictionary dictionary) {
  if (id == 0) return kNoCode;
  auto& strings = spaces_[space];
  const auto found = strings.find(id);
  if (found == strings.end()) {
    ++counted["names_missing"];
    return kNoCode;
  }
  std::int32_t& code = found->second.codes[dictionary];
  if (code >= 0) return code;
  Interner& into = dictionary == kNameDictionary ? names : dictionary == kModuleDictionary ? modules : stacks;
  code = into.code(found->second.text);
  if (code < 0) ++counted["names_dropped"], code = kNoCode;
  return code;
}

void ChunkReader::name_thread(std::uint32_t space, std::int32_t thread, std::uint64_t name) {
  if (name == 0 || name > UINT32_MAX || thread < 0) return;
  auto& last = thread_names_[thread];
  if (last == std::pair{space, name}) return;
  last = {space, name};
  const auto found = spaces_[space].find(static_cast<std::uint32_t>(name));
  if (found != spaces_[space].end()) new_thread_names_.emplace_back(thread, found->second.text);
}

bool ChunkReader::add(const ChunkPlace& place, std::string_view body) {
  const std::size_t before = columns.size();
  const bool good = body_.split(body) && read_labels(body_[kLabelsSection], labels_) &&
                    read_others(body_[kOthersSection], labels_, place.slots, others_) && add_events(place) &&
                    (!body_.has_attributes() || add_attributes(place, before));
  if (!good) columns.resize(before);
  return good;
}

void ChunkReader::look(const ChunkPlace& place) {
  looks_.clear();
  for (const Label& label : labels_) {
    std::int32_t name = text(place.space, label.name, kNameDictionary);
    const Meaning is = meaning(label, name < 0 ? std::string_view() : names[name]);
    if (name < 0 && label.is_event()) name = std::max(kNoCode, names.code(default_name(label)));
    const bool plain = label.flags == 0 && label.kind != SlotKind::kOp && label.kind != SlotKind::kUnknown;
    looks_.push_back({name, is.cat, static_cast<std::uint8_t>(is.kind), static_cast<std::uint8_t>(is.phase), plain});
  }
}

bool ChunkReader::add_events(const ChunkPlace& place) {
  look(place);
  process_ = process(false, place.pid), thread_ = thread(process_, place.tid);
  name_thread(place.space, thread_, place.thread_name);
  Cursor nested(body_[kNestedSection]);
  const std::uint64_t count = body_.has(kNestedSection) ? nested.count(4) : 0;
  const std::uint64_t label_bytes = count ? nested.varint() : 0, pop_bytes = count ? nested.varint() : 0;
  Cursor labels(nested.bytes(label_bytes)), pops(nested.bytes(pop_bytes)), times = nested;
  if (nested.bad() || count + others_.size() > place.slots) return false;

  const std::size_t first = columns.size();
  if (first == 0) columns.reserve(kBatchRows);
  columns.resize(first + count + others_.size());
  row_of_slot_.assign(body_.has_attributes() ? place.slots : 0, -1);
  open_.clear();
  std::size_t row = first, other_at = 0;
  std::uint64_t slot = 0, moment = 0, all_steps = 0, all_moments = 0;
  const auto own_row = [&](const Label& label, const Looks& looks) {
    columns.name[row] = looks.name, columns.cat[row] = looks.cat;
    columns.kind[row] = looks.kind, columns.phase[row] = looks.phase;
    columns.thread[row] = thread_;
    if (!row_of_slot_.empty()) row_of_slot_[slot] = static_cast<std::int32_t>(row - first);
    if (!looks.plain) particulars(place, label, static_cast<std::uint32_t>(slot), row);
  };
  // Modulo 2^64: whether a moment is one at all is known when all of them have been read.
  const auto unix_time = [&](std::uint64_t at) { return static_cast<std::int64_t>(static_cast<std::uint64_t>(place.start) + at); };
  const auto step = [&] {
    const std::uint64_t more = times.varint();
    all_steps |= more;
    moment += more;
    all_moments |= moment + static_cast<std::uint64_t>(kTimeMax);
  };
  const auto others_before = [&](std::uint64_t nested_left) {
    while (other_at < others_.size() && (others_[other_at].slot <= slot || nested_left == 0)) {
      const OtherRow& other_row = others_[other_at++];
      if (other_row.slot < slot) return false;  // within an extension, or an event that is already there
      slot = other_row.slot;
      const Label& label = labels_[other_row.label];
      if (label.is_event()) {
        own_row(label, looks_[other_row.label]);
        other(place, other_row, row++);
      } else if (label.kind == SlotKind::kThread) {
        thread_ = thread(process_, other_row.a);
        name_thread(place.space, thread_, other_row.b);
      }
      slot += 1u + label.extensions;
    }
    return true;
  };

  for (std::uint64_t i = 0; i < count; ++i) {
    if (!others_before(count - i) || slot >= place.slots) return false;
    const std::uint64_t number = labels.varint(), ended = pops.varint();
    if (number >= labels_.size() || ended > open_.size()) return false;
    const Label& label = labels_[number];
    if (!label.is_range() || (label.flags & (kAsyncFlag | kBackendFlag)) != 0) return false;
    for (std::uint64_t pop = 0; pop < ended; ++pop) {
      step();
      columns.end[open_.back()] = unix_time(moment);
      open_.pop_back();
    }
    if (i == 0) {
      moment = times.svarint();
      if (!in_time(moment)) return false;
    } else {
      step();
    }
    columns.start[row] = unix_time(moment);
    own_row(label, looks_[number]);
    open_.push_back(row++);
    slot += 1u + label.extensions;
  }
  for (; !open_.empty(); open_.pop_back()) {
    step();
    columns.end[open_.back()] = unix_time(moment);
  }
  if (!others_before(0) || slot > place.slots) return false;
  // No step goes beyond the range of times, and no sum: they are in order.
  if ((all_steps | all_moments >> 1) >= static_cast<std::uint64_t>(kTimeMax)) return false;
  // An event that the header counts and the body lacks would be lost without a word.
  if (row - first != place.events) return false;
  if (labels.bad() || pops.bad() || times.bad() || !labels.done() || !pops.done() || !times.done()) return false;
  columns.resize(row);
  std::fill(columns.process.begin() + static_cast<std::ptrdiff_t>(first), columns.process.end(), process_);
  std::fill(columns.device_type.begin() + static_cast<std::ptrdiff_t>(first), columns.device_type.end(),
            static_cast<std::uint8_t>(DeviceType::kCpu));
  return true;
}

// What few events have: those of NESTED come here, too.
void ChunkReader::particulars(const ChunkPlace& place, const Label& label, std::uint32_t slot, std::size_t row) {
  if (label.kind == SlotKind::kUnknown) ++counted["unknown_kind"];
  // Ops have an id that others may name; ranges, where CUPTI was told of them.
  if (label.kind == SlotKind::kOp || (label.kind == SlotKind::kRange && (label.flags & kNamedFlag)))
    columns.external.put(row, static_cast<std::int64_t>(place.id_base + slot));
  if (label.kind == SlotKind::kOp) columns.scope.put(row, label.scope);
  if (label.flags & kAsyncFlag) columns.is_async.put(row, 1), columns.phase[row] = 'b';
  const auto at = static_cast<std::int64_t>(row);
  if (label.flags & kOpenAtStartFlag) columns.open_at_start.put(at, 1);
  if (label.flags & kFailedFlag) columns.failed.put(at, 1);
  if (label.flags & kTf32Flag) columns.allow_tf32.put(at, 1);
}

void ChunkReader::other(const ChunkPlace& place, const OtherRow& from, std::size_t row) {
  const Label& label = labels_[from.label];
  const std::int64_t start = place.start + from.time;
  columns.start[row] = columns.end[row] = start;
  switch (label.kind) {
    case SlotKind::kInstant:
      return;
    case SlotKind::kCounter:
      columns.value.put(row, from.value);
      return;
    case SlotKind::kAlloc:
      columns.bytes.put(row, static_cast<std::int64_t>(from.a));
      columns.ptr.put(row, static_cast<std::int64_t>(from.b));
      return;
    case SlotKind::kOutOfMemory:
      columns.bytes.put(row, static_cast<std::int64_t>(from.a));
      return;
    default:
      break;
  }
  if (from.ended) {
    columns.end[row] = place.start + from.end;
    return;
  }
  const auto found = ends_.find({std::uint64_t{place.space} << 32 | place.stream, place.sequence, from.slot});
  if (found == ends_.end()) {
    columns.end[row] = kAbsent;
    if (columns.phase[row] == 'X') columns.phase[row] = 'B';
    return;
  }
  columns.end[row] = found->second.time;
  if (found->second.thread != thread_) columns.end_thread.put(row, found->second.thread);
  ends_.erase(found);
}

}  // namespace profd::scan
