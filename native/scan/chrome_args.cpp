#include "chrome_args.h"

#include "strings.h"

namespace profd::scan {
namespace {

constexpr std::string_view kDeviceTypeKey = "Device Type";

// c10::DeviceType, as torch writes it on memory events; HIP builds call themselves CUDA.
DeviceType torch_device(std::int64_t code, DeviceType accelerator) {
  switch (code) {
    case 0: return DeviceType::kCpu;
    case 1: return accelerator;
    case 6: return DeviceType::kHip;
    case 12: return DeviceType::kXpu;
    case 19: return DeviceType::kMtia;
    default: return DeviceType::kOther;
  }
}

}  // namespace

ChromeArgs::ChromeArgs(const Limits& limits, Budget& budget) : limits_(limits), budget_(&budget) {
  for (std::size_t i = 0; i < kCodeColumns; ++i) dictionaries_.emplace_back(budget);
  known("External id", Role::kInteger, kExternal);
  known("correlation", Role::kInteger, kCorrelation);
  known("stream", Role::kInteger, kStream);
  known("device", Role::kInteger, kDevice);
  known("context", Role::kInteger, kContext);
  known("Sequence number", Role::kInteger, kSequence);
  known("Fwd thread id", Role::kInteger, kFwdThread);
  known("Bytes", Role::kInteger, kBytes, When::kMemory);
  known("bytes", Role::kInteger, kBytes, When::kNotMemory);
  known("Addr", Role::kInteger, kPtr);
  known("Total Allocated", Role::kInteger, kTotalAllocated);
  known("Total Reserved", Role::kInteger, kTotalReserved);
  known("external id", Role::kAlias, kExternal);
  known("External Id", Role::kAlias, kExternal);
  known("Correlation", Role::kAlias, kCorrelation);
  known("correlation id", Role::kAlias, kCorrelation);
  known("Correlation id", Role::kAlias, kCorrelation);
  known("Stream", Role::kAlias, kStream);
  known("Device Id", Role::kAlias, kDevice);
  known("Context", Role::kAlias, kContext);
  known(kDeviceTypeKey, Role::kDeviceKind);
  std::uint64_t inputs = 0;
  for (const char* name : {"Input Dims", "Input type", "Input Strides", "Concrete Inputs"}) {
    Key& key = known(name, Role::kInput);
    append_quoted(key.quoted, name);
    key.quoted += ": ";
    key.input = inputs++;
  }
  known("Call stack", Role::kStack);
  known("Module Hierarchy", Role::kModule);
}

ChromeArgs::Key& ChromeArgs::known(std::string_view text, Role role, IntColumn column, When when) {
  names_.code(text);
  Key& key = keys_.emplace_back();
  key.text = text;
  key.role = role;
  key.column = column;
  key.when = when;
  return key;
}

ChromeArgs::Key* ChromeArgs::find(std::string_view text) {
  // Full: look without adding. The interner has no such call, so a full table is searched by its budget of 0.
  const bool full = ordinary_keys_ >= limits_.arg_keys;
  key_budget_.left = full ? 0 : SIZE_MAX;
  const std::int32_t code = names_.code(text);
  if (code < 0) return nullptr;
  if (static_cast<std::size_t>(code) == keys_.size()) {
    keys_.emplace_back().text = text;
    ++ordinary_keys_;
  }
  return &keys_[static_cast<std::size_t>(code)];
}

ChromeArgs::Key* ChromeArgs::find(const Field& argument) {
  const auto step = static_cast<std::size_t>(argument.step);  // not kept: beyond all
  if (step < by_step_.size() && by_step_[step]) [[likely]] return by_step_[step];
  Key* const key = find(argument.key);
  if (argument.step >= 0) {
    if (step >= by_step_.size()) by_step_.resize(step + 1);
    by_step_[step] = key;
  }
  return key;
}

void ChromeArgs::collect(const Field& field, Key* key) {
  if (key) {
    if (key->stamp == stamp_) members_[key->member].field = nullptr;  // a repeated member replaces the one before
    key->stamp = stamp_;
    key->member = members_.size();
  }
  members_.push_back({key, &field});
}

bool ChromeArgs::resolve(Record& record, std::string_view prefix, Row& row) {
  ++stamp_;
  members_.clear();
  inputs_.clear();
  extra_.clear();
  if (!renamed_.empty()) renamed_.clear();
  canonical_ = alias_ = 0;
  for (Field& field : record.args) {
    if (field.key.starts_with('@')) field.key = renamed_.emplace_back(1, '@').append(field.key);
    collect(field, find(field));
  }
  for (Field& field : record.others) {
    field.key = renamed_.emplace_back(prefix).append(field.key);
    collect(field, find(field.key));
  }
  for (const Member& member : members_) {
    if (member.field && !take(member, row)) return false;
  }
  // The exporter leaves a canonical key out where its alias stands; with both there, both stay arguments.
  for (unsigned both = canonical_ & alias_; both; both &= both - 1) {
    const auto column = static_cast<IntColumn>(__builtin_ctz(both));
    Value value;
    value.type = Type::kInt;
    value.integer = row.ints[column];
    if (!add(*canonical_keys_[column], value, row)) return false;
  }
  return take_inputs(row) && take_extra(row);
}

bool ChromeArgs::take(const Member& member, Row& row) {
  const Value& value = member.field->value;
  if (!member.key) {
    extra_.push_back(member.field);
    return true;
  }
  Key& key = *member.key;
  const bool memory = row.kind == Kind::kMemory;
  switch (key.role) {
    case Role::kInteger:
      if (value.type != Type::kInt) break;
      if (key.when == When::kAlways || (key.when == When::kMemory) == memory) {
        canonical_ |= 1u << key.column;
        canonical_keys_[key.column] = &key;
        row.set(key.column, value.integer);
        return true;
      }
      [[fallthrough]];
    case Role::kAlias:
      if (value.type != Type::kInt) break;
      alias_ |= 1u << key.column;
      if (!(canonical_ >> key.column & 1)) row.set(key.column, value.integer);
      break;
    case Role::kDeviceKind:
      if (memory && value.type == Type::kInt) row.device_type = torch_device(value.integer, accelerator);
      break;
    case Role::kInput:
      inputs_.push_back(member);
      return true;
    case Role::kStack:
    case Role::kModule: {
      if (value.type != Type::kStr) break;
      const CodeColumn column = key.role == Role::kStack ? kStack : kModule;
      return (row.codes[column] = dictionaries_[column].code(value.text)) >= 0;
    }
    case Role::kOrdinary:
      break;
  }
  return add(key, value, row);
}

// False when there is one that is not known from before.
bool ChromeArgs::input_parts(RecentInputs::Parts& parts) const {
  std::size_t at = 0;
  for (const Member& member : inputs_) {
    const std::uint64_t seen = member.field->value.seen;
    if (seen == 0) return false;
    parts[at++] = seen << 2 | member.key->input;
  }
  return true;
}

bool ChromeArgs::take_inputs(Row& row) {
  if (inputs_.empty()) return true;
  RecentInputs::Parts parts{};
  const bool known = input_parts(parts);
  if (known && (row.codes[kInputs] = recent_inputs_.code(parts)) >= 0) return true;
  scratch_.assign(1, '{');
  for (const Member& member : inputs_) {
    if (scratch_.size() > 1) scratch_ += ", ";
    scratch_.append(member.key->quoted).append(member.field->value.token);
  }
  scratch_ += '}';
  const std::int32_t code = row.codes[kInputs] = dictionaries_[kInputs].code(scratch_);
  if (known && code >= 0) recent_inputs_.keep(parts, code);
  return code >= 0;
}

bool ChromeArgs::take_extra(Row& row) {
  if (extra_.empty()) return true;
  if (extra_column_ < 0) {
    extra_column_ = static_cast<std::int32_t>(columns_.size());
    columns_.push_back({"@extra", Type::kJson, kIntColumns, std::make_unique<Interner>(*budget_), {}, {}, {}, {}});
  }
  scratch_.assign(1, '{');
  for (const Field* field : extra_) {
    if (scratch_.size() > 1) scratch_ += ", ";
    std::string_view key = field->key;
    if (key.starts_with("@@")) key.remove_prefix(1);  // an argument, as `resolve` has renamed it
    append_quoted(scratch_, key);
    scratch_ += ": ";
    scratch_ += field->value.token;
  }
  scratch_ += '}';
  return add_json(static_cast<std::uint32_t>(extra_column_), scratch_, row);
}

bool ChromeArgs::add_json(std::uint32_t column, std::string_view text, Row& row) {
  ArgValue value;
  value.column = column;
  value.code = columns_[column].strings->code(text);
  row.args.push_back(value);
  return value.code >= 0;
}

bool ChromeArgs::add(Key& key, const Value& value, Row& row) {
  std::int32_t& column = key.columns[static_cast<std::size_t>(value.type)];
  if (column < 0) {
    column = static_cast<std::int32_t>(columns_.size());
    const bool coded = value.type == Type::kStr || value.type == Type::kJson;
    columns_.push_back({key.text, value.type, key.column, coded ? std::make_unique<Interner>(*budget_) : nullptr, {}, {}, {}, {}});
  }
  const auto number = static_cast<std::uint32_t>(column);
  if (columns_[number].strings) return add_json(number, value.text, row);
  ArgValue out;
  out.column = number;
  if (value.type == Type::kInt) {
    out.integer = value.integer;
  } else {
    out.real = value.real();
  }
  row.args.push_back(out);
  return true;
}

void ChromeArgs::merge(Row& begin, const Row& end) const {
  const auto drop = [&](auto&& matches) {
    std::erase_if(begin.args, [&](const ArgValue& have) { return matches(columns_[have.column]); });
  };
  for (unsigned set = end.ints_set; set; set &= set - 1) {
    const auto column = static_cast<IntColumn>(__builtin_ctz(set));
    drop([&](const ArgColumn& have) { return have.integer == column; });
    begin.set(column, end.ints[column]);
  }
  for (std::size_t i = 0; i < kCodeColumns; ++i) {
    if (end.codes[i] >= 0) begin.codes[i] = end.codes[i];
  }
  for (const ArgValue& value : end.args) {
    const ArgColumn& column = columns_[value.column];
    drop([&](const ArgColumn& have) { return have.key == column.key; });
    if (column.integer != kIntColumns && !(end.ints_set >> column.integer & 1)) {
      begin.ints_set = static_cast<std::uint16_t>(begin.ints_set & ~(1u << column.integer));
    }
  }
  begin.args.insert(begin.args.end(), end.args.begin(), end.args.end());
}

void ChromeArgs::append(const Row& row, std::size_t at) {
  for (const ArgValue& value : row.args) {
    ArgColumn& column = columns_[value.column];
    column.rows.push_back(static_cast<std::int64_t>(at));
    if (column.type == Type::kInt) {
      column.integers.push_back(value.integer);
    } else if (column.type == Type::kFloat) {
      column.reals.push_back(value.real);
    } else {
      column.codes.push_back(value.code);
    }
  }
}

}  // namespace profd::scan
