// Arguments of Chrome events: which become typed columns, which keep a column of their own.
//
// Columns are named by argument key, except:
//   "@key"     a member of the event beside "args" that has no column ("@id", "@s", "@tts")
//   "@end.key" the same, of the event that ended a pair
//   "@@key"    an argument whose own name begins with '@'
//   "@extra"   an object with the arguments beyond the limit of distinct keys
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "chrome_record.h"
#include "columns.h"
#include "interner.h"
#include "recent_inputs.h"

namespace profd::scan {

class ChromeArgs {
 public:
  ChromeArgs(const Limits& limits, Budget& budget);

  // Resolves the arguments and other members of a record into `row`, whose kind is set already.
  // False when a string does not fit the dictionaries any more.
  bool resolve(Record& record, std::string_view prefix, Row& row);

  // Argument values of `end` replace or join those of `begin`: a pair is one event.
  void merge(Row& begin, const Row& end) const;

  // Writes the row's arguments at row number `at`.
  void append(const Row& row, std::size_t at);

  DeviceType accelerator = DeviceType::kCuda;  // what "Device Type" 1 means

  std::deque<ArgColumn>& columns() { return columns_; }
  Interner& dictionary(CodeColumn column) { return dictionaries_[column]; }

 private:
  enum class Role : std::uint8_t { kOrdinary, kInteger, kAlias, kDeviceKind, kInput, kStack, kModule };
  enum class When : std::uint8_t { kAlways, kMemory, kNotMemory };  // where a key is the canonical one

  struct Key {
    std::string text;
    Role role = Role::kOrdinary;
    When when = When::kAlways;
    IntColumn column = kIntColumns;
    std::int32_t columns[4] = {-1, -1, -1, -1};  // by Type
    std::uint64_t stamp = 0;                      // record that met it last
    std::size_t member = 0;                       // where in that record
    std::string quoted;                           // as JSON, with colon and blank; of kInput only
    std::uint64_t input = 0;                      // of kInput only: which of the four
  };

  struct Member {
    Key* key;  // null: beyond the limit of distinct keys
    const Field* field;
  };

  Key& known(std::string_view text, Role role, IntColumn column = kIntColumns, When when = When::kAlways);
  Key* find(std::string_view text);
  Key* find(const Field& argument);
  void collect(const Field& field, Key* key);
  bool take(const Member& member, Row& row);
  bool take_inputs(Row& row);
  bool input_parts(RecentInputs::Parts& parts) const;
  bool take_extra(Row& row);
  bool add(Key& key, const Value& value, Row& row);
  bool add_json(std::uint32_t column, std::string_view text, Row& row);

  Limits limits_;
  Budget* budget_;
  Budget key_budget_{SIZE_MAX};
  Interner names_{key_budget_};
  std::deque<Key> keys_;
  std::vector<Key*> by_step_;  // keys of arguments, by the step that led to them; null: not known yet
  std::size_t ordinary_keys_ = 0;
  std::deque<ArgColumn> columns_;
  std::deque<Interner> dictionaries_;
  std::int32_t extra_column_ = -1;

  // Of the record at hand.
  std::uint64_t stamp_ = 0;
  unsigned canonical_ = 0, alias_ = 0;  // bit per IntColumn
  Key* canonical_keys_[kIntColumns] = {};
  std::vector<Member> members_;
  std::vector<Member> inputs_;
  RecentInputs recent_inputs_;
  std::vector<const Field*> extra_;
  std::deque<std::string> renamed_;
  std::string scratch_;
};

}  // namespace profd::scan
