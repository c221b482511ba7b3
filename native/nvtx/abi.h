// What NVTX's headers (version 3) and a tool say to each other, as far as it is used here. Own declarations: neither the
// headers nor a CUDA toolkit are needed. Source of the numbers: nvtxDetail/nvtxTypes.h and nvToolsExt.h of CUDA 13.0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace profd::nvtx {

using Function = void (*)();

enum class ExportTable : uint32_t { Callbacks = 1, VersionInfo = 3 };
enum class Module : uint32_t { Core = 1, Core2 = 5 };  // functions without a domain, and with one

// Of each copy of the headers in a process (every library that was built with them has one of its own).
struct Callbacks {
  size_t bytes;
  // The table: pointers to the slots that hold the functions which the program calls. A null slot is not called.
  int (*module_table)(Module module, Function*** table, unsigned* count);
};
struct VersionInfo {
  size_t bytes;
  uint32_t version;
  uint32_t reserved;
  void (*set_tool_version)(uint32_t version);
};
using GetExportTable = const void* (*)(ExportTable);

// Places in the table of Module::Core.
enum class Core : unsigned {
  MarkEx = 1, MarkA = 2, MarkW = 3,
  RangeStartEx = 4, RangeStartA = 5, RangeStartW = 6, RangeEnd = 7,
  RangePushEx = 8, RangePushA = 9, RangePushW = 10, RangePop = 11,
};

// Places in the table of Module::Core2.
enum class Core2 : unsigned {
  DomainMarkEx = 1, DomainRangeStartEx = 2, DomainRangeEnd = 3, DomainRangePushEx = 4, DomainRangePop = 5,
  RegisterStringA = 10, RegisterStringW = 11, DomainCreateA = 12, DomainCreateW = 13,
};

enum class MessageType : int32_t { Unknown = 0, Ascii = 1, Unicode = 2, Registered = 3 };
enum class PayloadType : int32_t { Unknown = 0, U64 = 1, I64 = 2, Double = 3, U32 = 4, I32 = 5, Float = 6 };

struct Attributes {
  uint16_t version;
  uint16_t bytes;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  PayloadType payload_type;
  int32_t reserved;
  union {
    uint64_t u64;
    int64_t i64;
    double real;
    uint32_t u32;
    int32_t i32;
    float single;
  } payload;
  MessageType message_type;
  union {
    const char* ascii;
    const wchar_t* wide;
    const void* registered;
  } message;
};
static_assert(sizeof(Attributes) == 48);

using RangeId = uint64_t;
inline constexpr int kNoTracking = -2;  // what a push and a pop answer where nothing keeps count

}  // namespace profd::nvtx
