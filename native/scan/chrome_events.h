// Chrome records to rows: phases, pairs, flows, kinds and device types.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "chrome_args.h"
#include "chrome_kinds.h"
#include "chrome_record.h"
#include "chrome_tracks.h"
#include "columns.h"
#include "decimal.h"
#include "interner.h"

namespace profd::scan {

class ChromeEvents {
 public:
  explicit ChromeEvents(const Limits& limits);

  // Unix ns of the file's time zero, and what its device rows ran on (kOther: not known).
  void begin(std::int64_t base_ns, DeviceType accelerator);

  // Takes one record; `text` is all of it.
  void accept(Record& record, std::string_view text);
  void lose(std::string_view reason) { ++lost[std::string(reason)]; }

  // No more records: begins without an end become rows without one.
  void finish();

  Columns columns;
  FlowColumns flows;
  std::vector<std::string> metadata;  // "M" records as clean JSON
  std::map<std::string, std::uint64_t> lost, counted;

  Interner& names() { return names_; }
  Interner& cats() { return cats_; }
  Interner& flow_ids() { return flow_ids_; }
  ChromeArgs& args() { return args_; }
  ChromeTracks& tracks() { return tracks_; }

 private:
  using Async = std::unordered_map<std::string, std::vector<Row>, SeededHash>;  // by async_key; no vector is empty

  void complete(Record& record);
  void begin_pair(Record& record);
  void end_pair(Record& record);
  void begin_async(Record& record);
  void end_async(Record& record);
  void instant(Record& record, Kind kind);
  void flow(Record& record);
  void keep_metadata(std::string_view text);

  // Time, place, name and kind of a record into row_. False: lost, and counted so.
  bool open_row(Record& record, Kind kind);
  bool read_time(const Value& value, Time& out);
  bool to_unix(Time time, std::int64_t& ns);
  bool resolve_args(Record& record, std::string_view prefix);
  bool code(Interner& interner, const Value& value, std::int32_t& out);
  void classify(const Value& name);
  void close(Row& begin, const Row& end);
  void drop_empty(Async::iterator entry);
  void emit(const Row& row);
  bool hold(std::vector<Row>& stack);
  void release(const Row& row) { open_ -= 1 + row.args.size(); }
  std::string async_key(const Record& record) const;

  Limits limits_;
  Budget budget_;
  Interner names_, cats_, flow_ids_;
  ChromeArgs args_;
  ChromeTracks tracks_;
  std::vector<Category> categories_;  // by code of cats_
  DeviceType accelerator_ = DeviceType::kOther;
  std::int64_t base_ns_ = 0;

  Row row_;
  Time start_;  // of row_, as recorded
  struct Stack {
    std::vector<Row> rows;
    std::uint64_t beyond = 0;  // begins that found no room; their ends are lost too
  };
  std::unordered_map<std::int32_t, Stack> stacks_;  // by thread
  Async async_;
  std::size_t open_ = 0;  // rows and argument values that wait for an end
};

}  // namespace profd::scan
