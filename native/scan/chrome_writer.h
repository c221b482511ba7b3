// Columns back to Chrome trace JSON: the inverse of chrome_events and chrome_args.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "columns.h"

namespace profd::scan {

// One argument column as stored; `strings` are JSON tokens by code.
struct StoredArg {
  std::string key;  // with its '@' prefixes
  Type type;
  const std::int64_t* rows;
  std::size_t size;
  const std::int64_t* integers = nullptr;
  const double* reals = nullptr;
  const std::int32_t* codes = nullptr;
  const std::vector<std::string>* strings = nullptr;
};

// Null where the table does not have the column.
struct StoredColumns {
  std::size_t rows = 0;
  const std::int32_t *name = nullptr, *cat = nullptr, *process = nullptr, *thread = nullptr;
  const std::uint8_t *kind = nullptr, *phase = nullptr;
  const std::int64_t *start = nullptr, *end = nullptr, *weight = nullptr;
  const double* value = nullptr;
  std::array<const std::int64_t*, kIntColumns> ints = {};
  std::array<const std::int32_t*, kCodeColumns> codes = {};
};

struct StoredFlows {
  std::size_t rows = 0;
  const std::int32_t *id, *category, *name, *thread;
  const std::uint8_t *phase, *enclosing;
  const std::int64_t* time;
};

// Strings are added as they become known, as JSON tokens; codes index them.
class ChromeWriter {
 public:
  explicit ChromeWriter(std::int64_t base_ns) : base_ns_(base_ns) {}

  std::vector<std::string>& strings(const std::string& dictionary) { return strings_[dictionary]; }
  void set_tracks(std::vector<std::string> processes, std::vector<std::string> threads,
                  std::vector<std::int32_t> thread_process);

  // The rows from `first` up to `last`. Records are separated (and, after the first call of either,
  // preceded) by ",\n".
  std::string write_events(const StoredColumns& columns, const std::vector<StoredArg>& args, std::size_t first,
                           std::size_t last);
  std::string write_flows(const StoredFlows& flows);

 private:
  enum class Role : std::uint8_t { kArg, kMember, kEndMember, kExtra };
  struct Argument {
    const StoredArg* stored;
    Role role;
    std::string token;      // the key as it is written, with quotes
    unsigned suppresses;    // bit per IntColumn that it stands for
    std::size_t next = 0;   // first entry not yet written
  };

  static std::vector<Argument> prepare(const std::vector<StoredArg>& args, std::size_t first);
  void head(std::string& out, char phase, std::int32_t name, std::int32_t cat, std::int64_t ns);
  void place(std::string& out, std::int32_t thread);
  void event(std::string& out, const StoredColumns& columns, std::vector<Argument>& args, std::size_t row);
  void arguments(std::string& out, const StoredColumns& columns, std::size_t row);
  void end_of_pair(std::string& out, const StoredColumns& columns, std::size_t row);
  void value(std::string& out, const Argument& argument);
  const std::string& token(const char* dictionary, std::int32_t code);
  void separate(std::string& out);

  std::int64_t base_ns_;
  std::map<std::string, std::vector<std::string>> strings_;
  std::vector<std::string> processes_, threads_;
  std::vector<std::int32_t> thread_process_;
  bool first_ = true;
  std::vector<Argument*> present_;  // of the row at hand
};

}  // namespace profd::scan
