// Rows on their way into the columns of a batch (profd.events.schema).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "chrome_record.h"
#include "interner.h"

namespace profd::scan {

inline constexpr std::int64_t kAbsent = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int32_t kNoCode = -1;

enum class Kind : std::uint8_t {  // profd.events.Kind
  kOther, kCpuOp, kUserAnnotation, kPythonFunction, kInstant, kRuntime, kDriver, kKernel, kMemcpy, kMemset,
  kSync, kOverhead, kGpuUserAnnotation, kMemory, kCounter, kSample, kTrace,
};

enum class DeviceType : std::uint8_t { kOther, kCpu, kCuda, kHip, kXpu, kMtia, kTpu };  // profd.events.DeviceType

// int64 columns that well-known integer arguments fill.
enum IntColumn : std::uint8_t {
  kExternal, kCorrelation, kStream, kDevice, kContext, kSequence, kFwdThread, kBytes, kPtr, kTotalAllocated,
  kTotalReserved, kIntColumns,
};
inline constexpr std::array<std::string_view, kIntColumns> kIntColumnNames = {
    "external", "correlation", "stream", "device", "context", "sequence", "fwd_thread", "bytes", "ptr",
    "total_allocated", "total_reserved"};

enum CodeColumn : std::uint8_t { kStack, kModule, kInputs, kCodeColumns };
inline constexpr std::array<std::string_view, kCodeColumns> kCodeColumnNames = {"stack", "module", "inputs"};

struct ArgValue {
  std::uint32_t column;
  union {
    std::int64_t integer;
    double real;
    std::int32_t code;
  };
};

// One event, resolved: strings are codes already, so that an open begin holds no text.
struct Row {
  std::int32_t name = kNoCode, cat = kNoCode, process = -1, thread = -1;
  Kind kind = Kind::kOther;
  char phase = 0;
  DeviceType device_type = DeviceType::kCpu;
  std::uint16_t ints_set = 0;  // bit per IntColumn
  std::int64_t start = 0, end = kAbsent;
  double value = std::numeric_limits<double>::quiet_NaN();
  std::array<std::int64_t, kIntColumns> ints;
  std::array<std::int32_t, kCodeColumns> codes = {kNoCode, kNoCode, kNoCode};
  std::vector<ArgValue> args;

  void set(IntColumn column, std::int64_t v) { ints[column] = v, ints_set = static_cast<std::uint16_t>(ints_set | 1u << column); }
  void reset() {
    name = cat = kNoCode;
    process = thread = -1;
    kind = Kind::kOther;
    ints_set = 0;
    end = kAbsent;
    value = std::numeric_limits<double>::quiet_NaN();
    codes = {kNoCode, kNoCode, kNoCode};
    args.clear();
  }
};

// The values of one (key, type); its dictionary lives as long as the trace.
struct ArgColumn {
  std::string key;
  Type type;
  IntColumn integer;                  // the typed column that integers of this key go to; kIntColumns: none
  std::unique_ptr<Interner> strings;  // of kStr and kJson
  std::vector<std::int64_t> rows, integers;
  std::vector<double> reals;
  std::vector<std::int32_t> codes;
};

// Columns that most rows have are always there; the others from the first row that has them.
struct Columns {
  std::vector<std::int32_t> name, cat, process, thread;
  std::vector<std::uint8_t> kind, phase, device_type;
  std::vector<std::int64_t> start, end;
  std::vector<double> value;
  std::array<std::vector<std::int64_t>, kIntColumns> ints;
  std::array<std::vector<std::int32_t>, kCodeColumns> codes;

  std::size_t size() const { return start.size(); }
  void append(const Row& row);
  void pad();  // fills the optional columns in use to full length
  void reserve_like(const Columns& other);
};

struct FlowColumns {
  std::vector<std::int32_t> id, category, name, thread;
  std::vector<std::uint8_t> phase;
  std::vector<std::uint8_t> enclosing;
  std::vector<std::int64_t> time;
};

}  // namespace profd::scan
