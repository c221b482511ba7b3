#include "chrome_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "strings.h"

namespace profd::scan {
namespace {

void append_int(std::string& out, std::int64_t value) {
  char text[24];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  out.append(text, end);
}

// Nanoseconds as decimal microseconds, exactly.
void append_us(std::string& out, std::int64_t ns) {
  const bool negative = ns < 0;
  const std::uint64_t size = negative ? 0u - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  if (negative) out += '-';
  char text[24];
  out.append(text, std::to_chars(text, text + sizeof text, size / 1000).ptr);
  const auto rest = static_cast<unsigned>(size % 1000);
  const char fraction[4] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                            static_cast<char>('0' + rest % 10)};
  out.append(fraction, 4);
}

void append_real(std::string& out, double value) {
  char text[40];
  const std::string_view shortest(text, static_cast<std::size_t>(std::to_chars(text, text + sizeof text, value).ptr - text));
  out += shortest;
  // Stays a float when it is read again.
  if (shortest.find_first_of(".e") == std::string_view::npos) out += ".0";
}

// The members of an object without its braces.
std::string_view inside(std::string_view object) {
  return object.size() >= 2 ? object.substr(1, object.size() - 2) : std::string_view();
}

std::string_view canonical_key(IntColumn column, bool memory) {
  static constexpr std::array<std::string_view, kIntColumns> kKeys = {
      "\"External id\": ", "\"correlation\": ", "\"stream\": ", "\"device\": ", "\"context\": ", "\"Sequence number\": ",
      "\"Fwd thread id\": ", "\"bytes\": ", "\"Addr\": ", "\"Total Allocated\": ", "\"Total Reserved\": "};
  return column == kBytes && memory ? "\"Bytes\": " : kKeys[column];
}

// Integer arguments that say what a typed column says; chrome_args.cpp has the same lists.
unsigned stands_for(std::string_view key) {
  struct Known {
    std::string_view key;
    IntColumn column;
  };
  static constexpr Known kKnown[] = {
      {"External id", kExternal}, {"external id", kExternal}, {"External Id", kExternal},
      {"correlation", kCorrelation}, {"Correlation", kCorrelation}, {"correlation id", kCorrelation},
      {"Correlation id", kCorrelation}, {"stream", kStream}, {"Stream", kStream}, {"device", kDevice},
      {"Device Id", kDevice}, {"context", kContext}, {"Context", kContext}, {"Sequence number", kSequence},
      {"Fwd thread id", kFwdThread}, {"Bytes", kBytes}, {"bytes", kBytes}, {"Addr", kPtr},
      {"Total Allocated", kTotalAllocated}, {"Total Reserved", kTotalReserved}};
  for (const Known& known : kKnown) {
    if (known.key == key) return 1u << known.column;
  }
  return 0;
}

class Members {
 public:
  explicit Members(std::string& out) : out_(out) {}
  // Begins a member; the caller writes it.
  std::string& next() {
    out_ += any_ ? ", " : "";
    any_ = true;
    return out_;
  }

 private:
  std::string& out_;
  bool any_ = false;
};

}  // namespace

void ChromeWriter::set_tracks(std::vector<std::string> processes, std::vector<std::string> threads,
                              std::vector<std::int32_t> thread_process) {
  processes_ = std::move(processes);
  threads_ = std::move(threads);
  thread_process_ = std::move(thread_process);
}

const std::string& ChromeWriter::token(const char* dictionary, std::int32_t code) {
  static const std::string kNull = "null";
  const std::vector<std::string>& known = strings_[dictionary];
  return code >= 0 && static_cast<std::size_t>(code) < known.size() ? known[static_cast<std::size_t>(code)] : kNull;
}

std::vector<ChromeWriter::Argument> ChromeWriter::prepare(const std::vector<StoredArg>& args, std::size_t first) {
  std::vector<Argument> out;
  for (const StoredArg& stored : args) {
    std::string_view key = stored.key;
    Role role = Role::kArg;
    if (key == "@extra") {
      role = Role::kExtra;
    } else if (key.substr(0, 2) == "@@") {
      key.remove_prefix(1);
    } else if (key.substr(0, 5) == "@end.") {
      role = Role::kEndMember;
      key.remove_prefix(5);
    } else if (key.substr(0, 1) == "@") {
      role = Role::kMember;
      key.remove_prefix(1);
    }
    std::string token;
    append_quoted(token, key);
    token += ": ";
    const std::int64_t* const from = std::lower_bound(stored.rows, stored.rows + stored.size, static_cast<std::int64_t>(first));
    out.push_back({&stored, role, std::move(token),
                   role == Role::kArg && stored.type == Type::kInt ? stands_for(key) : 0,
                   static_cast<std::size_t>(from - stored.rows)});
  }
  return out;
}

void ChromeWriter::separate(std::string& out) {
  if (!first_) out += ",\n";
  first_ = false;
}

void ChromeWriter::head(std::string& out, char phase, std::int32_t name, std::int32_t cat, std::int64_t ns) {
  separate(out);
  out += "{\"ph\": \"";
  out += phase;
  out += '"';
  if (cat >= 0) out.append(", \"cat\": ").append(token("cat", cat));
  if (name >= 0) out.append(", \"name\": ").append(token("name", name));
  out += ", \"ts\": ";
  append_us(out, ns - base_ns_);
}

void ChromeWriter::place(std::string& out, std::int32_t thread) {
  if (thread < 0 || static_cast<std::size_t>(thread) >= threads_.size()) return;
  const std::int32_t process = thread_process_[static_cast<std::size_t>(thread)];
  if (process >= 0 && static_cast<std::size_t>(process) < processes_.size()) {
    const std::string& pid = processes_[static_cast<std::size_t>(process)];
    if (!pid.empty()) out.append(", \"pid\": ").append(pid);
  }
  const std::string& tid = threads_[static_cast<std::size_t>(thread)];
  if (!tid.empty()) out.append(", \"tid\": ").append(tid);
}

void ChromeWriter::value(std::string& out, const Argument& argument) {
  const StoredArg& stored = *argument.stored;
  const std::size_t at = argument.next - 1;
  if (stored.integers) return append_int(out, stored.integers[at]);
  if (stored.reals) return std::isfinite(stored.reals[at]) ? append_real(out, stored.reals[at]) : void(out += "null");
  const std::int32_t code = stored.codes[at];
  const bool known = code >= 0 && static_cast<std::size_t>(code) < stored.strings->size();
  out += known ? (*stored.strings)[static_cast<std::size_t>(code)] : "null";
}

void ChromeWriter::arguments(std::string& out, const StoredColumns& columns, std::size_t row) {
  const bool memory = columns.kind && columns.kind[row] == static_cast<std::uint8_t>(Kind::kMemory);
  unsigned suppressed = 0;
  for (const Argument* argument : present_) suppressed |= argument->suppresses;
  const std::size_t opened = out.size();
  out += ", \"args\": {";
  const std::size_t empty = out.size();
  Members members(out);
  for (unsigned i = 0; i < kIntColumns; ++i) {
    if (!columns.ints[i] || columns.ints[i][row] == kAbsent || (suppressed >> i & 1)) continue;
    members.next() += canonical_key(static_cast<IntColumn>(i), memory);
    append_int(out, columns.ints[i][row]);
  }
  static constexpr const char* kTextKeys[] = {"\"Call stack\": ", "\"Module Hierarchy\": "};
  for (unsigned i = 0; i < 2; ++i) {
    if (!columns.codes[i] || columns.codes[i][row] < 0) continue;
    members.next() += kTextKeys[i];
    out += token(kCodeColumnNames[i].data(), columns.codes[i][row]);
  }
  if (columns.codes[kInputs] && columns.codes[kInputs][row] >= 0) {
    members.next() += inside(token("inputs", columns.codes[kInputs][row]));
  }
  if (columns.weight && columns.weight[row] != kAbsent) {
    members.next() += "\"weight\": ";
    append_int(out, columns.weight[row]);
  }
  for (const Argument* argument : present_) {
    if (argument->role == Role::kArg) {
      members.next() += argument->token;
      value(out, *argument);
    } else if (argument->role == Role::kExtra) {
      std::string object;
      value(object, *argument);
      members.next() += inside(object);
    }
  }
  // A counter that was decoded without arguments has its value in the column only.
  if (out.size() == empty && columns.value && !std::isnan(columns.value[row])) {
    members.next() += "\"value\": ";
    append_real(out, columns.value[row]);
  }
  if (out.size() == empty) {
    out.resize(opened);
  } else {
    out += '}';
  }
}

void ChromeWriter::end_of_pair(std::string& out, const StoredColumns& columns, std::size_t row) {
  const char phase = columns.phase[row] == 'B' ? 'E' : 'e';
  head(out, phase, columns.name[row], columns.cat[row], columns.end[row]);
  // An async event may end on another track; its members say which.
  const bool elsewhere = std::any_of(present_.begin(), present_.end(), [](const Argument* argument) {
    return argument->stored->key == "@end.pid" || argument->stored->key == "@end.tid";
  });
  if (!elsewhere) place(out, columns.thread[row]);
  for (const Argument* argument : present_) {
    const bool id = phase == 'e' && argument->role == Role::kMember &&
                    (argument->stored->key == "@id" || argument->stored->key == "@id2" || argument->stored->key == "@scope");
    if (argument->role != Role::kEndMember && !id) continue;
    out.append(", ").append(argument->token);
    value(out, *argument);
  }
  out += '}';
}

void ChromeWriter::event(std::string& out, const StoredColumns& columns, std::vector<Argument>& args, std::size_t row) {
  present_.clear();
  for (Argument& argument : args) {
    if (argument.next < argument.stored->size && argument.stored->rows[argument.next] == static_cast<std::int64_t>(row)) {
      ++argument.next;
      present_.push_back(&argument);
    }
  }
  const std::int64_t end = columns.end ? columns.end[row] : kAbsent;
  char phase = columns.phase ? static_cast<char>(columns.phase[row]) : '\0';
  if (!phase) {
    // Not from a Chrome trace: the phase that says the same.
    const Kind kind = static_cast<Kind>(columns.kind[row]);
    phase = kind == Kind::kCounter ? 'C' : kind == Kind::kInstant || kind == Kind::kMemory ? 'i' : end == kAbsent ? 'B' : 'X';
  }
  head(out, phase, columns.name[row], columns.cat[row], columns.start[row]);
  place(out, columns.thread[row]);
  if (phase == 'X' && end != kAbsent) {
    out += ", \"dur\": ";
    append_us(out, end - columns.start[row]);
  }
  for (const Argument* argument : present_) {
    if (argument->role != Role::kMember) continue;
    out.append(", ").append(argument->token);
    value(out, *argument);
  }
  arguments(out, columns, row);
  out += '}';
  if ((phase == 'B' || phase == 'b') && end != kAbsent) end_of_pair(out, columns, row);
}

std::string ChromeWriter::write_events(const StoredColumns& columns, const std::vector<StoredArg>& args,
                                       std::size_t first, std::size_t last) {
  std::vector<Argument> arguments = prepare(args, first);
  std::string out;
  last = std::min(last, columns.rows);
  if (first < last) out.reserve((last - first) * 300);
  for (std::size_t row = first; row < last; ++row) event(out, columns, arguments, row);
  return out;
}

std::string ChromeWriter::write_flows(const StoredFlows& flows) {
  static constexpr std::string_view kSecondId = "{\"id2\": ";
  std::string out;
  out.reserve(flows.rows * 120);
  for (std::size_t row = 0; row < flows.rows; ++row) {
    head(out, static_cast<char>(flows.phase[row]), flows.name[row], flows.category[row], flows.time[row]);
    place(out, flows.thread[row]);
    if (flows.id[row] >= 0) {
      const std::string& id = token("flow_id", flows.id[row]);
      if (id.compare(0, kSecondId.size(), kSecondId) == 0) {
        out.append(", ").append(inside(id));
      } else {
        out.append(", \"id\": ").append(id);
      }
    }
    out += flows.enclosing[row] ? ", \"bp\": \"e\"}" : "}";
  }
  return out;
}

}  // namespace profd::scan
