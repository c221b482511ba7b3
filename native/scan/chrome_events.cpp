#include "chrome_events.h"

#include <algorithm>

#include "strings.h"

namespace profd::scan {
namespace {

// Lines that our own export draws beside what was recorded (daemon/profd/export/derived.py): they are no events.
constexpr std::string_view kDerived = "profd.derived";

// What an open async id holds beside its rows, in the unit of ChromeEvents::open_.
std::size_t key_cost(const std::string& key) { return 2 + key.size() / sizeof(ArgValue); }

}  // namespace

ChromeEvents::ChromeEvents(const Limits& limits)
    : limits_(limits),
      budget_{limits.dictionary_bytes},
      names_(budget_),
      cats_(budget_),
      flow_ids_(budget_),
      args_(limits, budget_),
      tracks_(limits.tracks, budget_) {}

void ChromeEvents::begin(std::int64_t base_ns, DeviceType accelerator) {
  base_ns_ = base_ns;
  accelerator_ = accelerator;
}

void ChromeEvents::accept(Record& record, std::string_view text) {
  if (record.fault == RecordFault::kTooLarge) return lose("too_large");
  if (record.cat.text == kDerived) {
    ++counted["derived_left_out"];
    return;
  }
  const std::string_view phase = record.phase.type == Type::kStr ? record.phase.text : std::string_view();
  const char p = phase.size() == 1 ? phase[0] : '\0';
  if (p == 's' || p == 't' || p == 'f') return flow(record);
  if (p == 'M') return keep_metadata(text);
  // Members that have a meaning in other phases only are kept like any other.
  if (!record.id.token.empty() && p != 'e') record.others.push_back({"id", -1, record.id});
  if (!record.bp.token.empty()) record.others.push_back({"bp", -1, record.bp});
  if (!record.dur.token.empty() && p != 'X') record.others.push_back({"dur", -1, record.dur});
  switch (p) {
    case 'X': return complete(record);
    case 'B': return begin_pair(record);
    case 'E': return end_pair(record);
    case 'b': return begin_async(record);
    case 'e': return end_async(record);
    case 'i':
    case 'I':
    case 'n': return instant(record, Kind::kInstant);
    case 'C': return instant(record, Kind::kCounter);
    case 'P': return instant(record, Kind::kSample);
    default: return lose("unknown_phase");
  }
}

bool ChromeEvents::read_time(const Value& value, Time& out) {
  if (value.fraction != Value::kLong && us_to_time(value.integer, value.fraction, out)) [[likely]] return true;
  return (value.number || value.type == Type::kStr) && parse_us(value.text, out);
}

bool ChromeEvents::to_unix(Time time, std::int64_t& ns) {
  return !__builtin_add_overflow(round_ns(time), base_ns_, &ns) && ns != kAbsent;
}

bool ChromeEvents::code(Interner& interner, const Value& value, std::int32_t& out) {
  out = kNoCode;
  if (value.token.empty()) return true;
  out = interner.code(value.type == Type::kStr ? value.text : value.token);
  return out >= 0;
}

bool ChromeEvents::open_row(Record& record, Kind kind) {
  row_.reset();
  row_.phase = record.phase.text[0];
  if (!read_time(record.ts, start_) || !to_unix(start_, row_.start)) return lose("bad_time"), false;
  const ChromeTracks::Place place = tracks_.find(record.pid.token, record.tid.token);
  if (place.thread < 0) return lose("too_many_tracks"), false;
  row_.process = place.process;
  row_.thread = place.thread;
  if (!code(names_, record.name, row_.name) || !code(cats_, record.cat, row_.cat)) return lose("dictionary_full"), false;
  row_.kind = kind;
  classify(record.name);
  return true;
}

bool ChromeEvents::resolve_args(Record& record, std::string_view prefix) {
  if (args_.resolve(record, prefix, row_)) return true;
  lose("dictionary_full");
  return false;
}

void ChromeEvents::emit(const Row& row) {
  args_.append(row, columns.size());
  columns.append(row);
}

void ChromeEvents::complete(Record& record) {
  if (!open_row(record, Kind::kOther)) return;
  if (!record.dur.token.empty()) {
    Time duration, end;
    if (!read_time(record.dur, duration) || !add(start_, duration, end) || !to_unix(end, row_.end)) return lose("bad_time");
  }
  if (!resolve_args(record, "@")) return;
  if (row_.end != kAbsent && row_.end < row_.start) {
    row_.end = row_.start;
    ++counted["end_before_start"];
  }
  emit(row_);
}

void ChromeEvents::instant(Record& record, Kind kind) {
  if (!open_row(record, kind)) return;
  row_.end = row_.start;
  if (kind == Kind::kCounter) {
    const bool single = record.args.size() == 1 && record.args[0].value.number;
    const Value* const value = single ? &record.args[0].value : nullptr;
    if (value && value->type == Type::kInt) row_.value = static_cast<double>(value->integer);
    if (value && value->type == Type::kFloat) row_.value = value->real();
  }
  if (resolve_args(record, "@")) emit(row_);
}

bool ChromeEvents::hold(std::vector<Row>& stack) {
  const std::size_t cost = 1 + row_.args.size();
  if (open_ + cost > limits_.open_rows) return false;
  open_ += cost;
  stack.push_back(row_);
  return true;
}

void ChromeEvents::begin_pair(Record& record) {
  if (!open_row(record, Kind::kOther) || !resolve_args(record, "@")) return;
  Stack& stack = stacks_[row_.thread];
  if (stack.beyond == 0 && hold(stack.rows)) return;
  ++stack.beyond;
  ++counted["too_many_open"];
  emit(row_);
}

void ChromeEvents::end_pair(Record& record) {
  record.name = record.cat = Value{};  // the begin names the pair
  if (!open_row(record, Kind::kOther) || !resolve_args(record, "@end.")) return;
  const auto found = stacks_.find(row_.thread);
  if (found != stacks_.end() && found->second.beyond > 0) {
    --found->second.beyond;
    return lose("unmatched_end");
  }
  if (found == stacks_.end() || found->second.rows.empty()) return lose("unmatched_end");
  Row begin = std::move(found->second.rows.back());
  found->second.rows.pop_back();
  close(begin, row_);
}

std::string ChromeEvents::async_key(const Record& record) const {
  // As Chrome pairs them: category, id (with its scope) and name; never the thread.
  std::string key(record.cat.token);
  key += '\x1f';
  key += record.name.token;
  key += '\x1f';
  key += record.id.token;
  for (const Field& field : record.others) {
    if (field.key != "id2" && field.key != "scope") continue;
    key += '\x1f';
    key += field.value.token;
  }
  return key;
}

void ChromeEvents::begin_async(Record& record) {
  std::string key = async_key(record);
  if (!open_row(record, Kind::kOther) || !resolve_args(record, "@")) return;
  auto found = async_.find(key);
  if (found == async_.end()) {
    if (open_ + key_cost(key) > limits_.open_rows) {
      ++counted["too_many_open"];
      return emit(row_);
    }
    open_ += key_cost(key);
    found = async_.try_emplace(std::move(key)).first;
  }
  if (hold(found->second)) return;
  ++counted["too_many_open"];
  emit(row_);
  drop_empty(found);
}

void ChromeEvents::end_async(Record& record) {
  const auto found = async_.find(async_key(record));
  std::erase_if(record.others, [](const Field& field) { return field.key == "id2" || field.key == "scope"; });
  const bool matched = found != async_.end();
  const std::int32_t thread = matched ? found->second.back().thread : -1;
  record.name = record.cat = Value{};
  if (!open_row(record, Kind::kOther)) return;
  if (matched && row_.thread != thread) {
    // An async event may end elsewhere; the row stays where it began.
    record.others.push_back({"pid", -1, record.pid});
    record.others.push_back({"tid", -1, record.tid});
    std::erase_if(record.others, [](const Field& field) { return field.value.token.empty(); });
  }
  if (!resolve_args(record, "@end.")) return;
  if (!matched) return lose("unmatched_end");
  Row begin = std::move(found->second.back());
  found->second.pop_back();
  drop_empty(found);
  close(begin, row_);
}

void ChromeEvents::drop_empty(Async::iterator entry) {
  if (!entry->second.empty()) return;
  open_ -= key_cost(entry->first);
  async_.erase(entry);
}

void ChromeEvents::close(Row& begin, const Row& end) {
  release(begin);
  args_.merge(begin, end);
  begin.end = end.start;
  if (begin.end < begin.start) {
    begin.end = begin.start;
    ++counted["end_before_start"];
  }
  emit(begin);
}

void ChromeEvents::flow(Record& record) {
  Time time;
  std::int64_t ns;
  if (!read_time(record.ts, time) || !to_unix(time, ns)) return lose("bad_flow_time");
  const ChromeTracks::Place place = tracks_.find(record.pid.token, record.tid.token);
  if (place.thread < 0) return lose("too_many_tracks");
  std::int32_t name, cat, id = kNoCode;
  const Value* key = &record.id;
  std::string id2;
  for (const Field& field : record.others) {
    if (field.key != "id2" || !record.id.token.empty()) continue;
    // Told apart from a plain id by its name, so that it can be written back.
    id2 = "{\"id2\": " + std::string(field.value.token) + "}";
  }
  const std::string_view token = id2.empty() ? key->token : std::string_view(id2);
  if (!token.empty()) id = flow_ids_.code(token);
  if (id == Interner::kFull || !code(names_, record.name, name) || !code(cats_, record.cat, cat)) {
    return lose("dictionary_full");
  }
  if (!record.args.empty() || record.others.size() > (id2.empty() ? 0u : 1u)) ++counted["flow_members_dropped"];
  flows.id.push_back(id);
  flows.category.push_back(cat);
  flows.name.push_back(name);
  flows.thread.push_back(place.thread);
  flows.phase.push_back(static_cast<std::uint8_t>(record.phase.text[0]));
  flows.enclosing.push_back(record.bp.type == Type::kStr && record.bp.text == "e");
  flows.time.push_back(ns);
}

void ChromeEvents::keep_metadata(std::string_view text) {
  constexpr std::size_t kEntry = 512;  // what naming a track takes beside the text
  if (text.size() + kEntry > budget_.left) {
    ++counted["metadata_dropped"];
    return;
  }
  budget_.left -= text.size() + kEntry;
  metadata.push_back(clean_json(text));
}

void ChromeEvents::finish() {
  std::vector<std::int32_t> threads;
  for (const auto& [thread, stack] : stacks_) threads.push_back(thread);
  std::sort(threads.begin(), threads.end());
  for (const std::int32_t thread : threads) {
    for (const Row& row : stacks_[thread].rows) {
      ++counted["unmatched_begin"];
      emit(row);
    }
  }
  std::vector<const Row*> open;
  for (const auto& [key, rows] : async_) {
    for (const Row& row : rows) open.push_back(&row);
  }
  std::sort(open.begin(), open.end(), [](const Row* a, const Row* b) {
    return a->start != b->start ? a->start < b->start : a->thread < b->thread;
  });
  if (!open.empty()) counted["unmatched_begin"] += open.size();
  for (const Row* row : open) emit(*row);
  stacks_.clear();
  async_.clear();
  open_ = 0;
}

void ChromeEvents::classify(const Value& name) {
  Category category;
  if (row_.cat >= 0) {
    while (categories_.size() <= static_cast<std::size_t>(row_.cat)) {
      categories_.push_back(categorize(cats_[static_cast<std::int32_t>(categories_.size())]));
      if (accelerator_ == DeviceType::kOther) accelerator_ = categories_.back().implies;
    }
    category = categories_[static_cast<std::size_t>(row_.cat)];
  }
  if (row_.kind == Kind::kOther || (row_.kind == Kind::kInstant && category.known)) row_.kind = category.kind;
  const bool point = row_.phase == 'i' || row_.phase == 'I';
  if (point && name.text == "[memory]") row_.kind = Kind::kMemory;
  // Without deviceProperties the runtime's own calls tell AMD from NVIDIA.
  if (accelerator_ == DeviceType::kOther && row_.kind == Kind::kRuntime && name.text.starts_with("hip")) {
    accelerator_ = DeviceType::kHip;
  }
  const DeviceType accelerator = accelerator_ == DeviceType::kOther ? DeviceType::kCuda : accelerator_;
  const bool on_device = category.device == DeviceType::kOther;
  row_.device_type = on_device ? accelerator : category.device;
  args_.accelerator = accelerator;
}

}  // namespace profd::scan
