// What we know of CUPTI without its headers: numbers, prototypes, and where fields of records are.
//
// Record prefixes are the same from CUDA 12.1 to 13.5 (docs/facts/cupti.md); only sizes grow, and CUPTI itself walks
// them. Another major version is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace profd::cupti {

using Result = int32_t;  // CUptiResult
inline constexpr Result kSuccess = 0;
inline constexpr Result kNotCompatible = 14;
inline constexpr Result kNotInitialized = 15;
inline constexpr Result kVirtualized = 33;
inline constexpr Result kNoPrivilege = 35;
inline constexpr Result kOtherSubscriber = 39;
inline constexpr Result kVirtualizedNoPrivilege = 40;
inline constexpr Result kConfidential = 41;
inline constexpr Result kMining = 42;
inline constexpr Result kMig = 43;
inline constexpr Result kWsl = 45;

enum class Activity : uint32_t {  // CUpti_ActivityKind
  Memcpy = 1,
  Memset = 2,
  Driver = 4,
  Runtime = 5,
  Kernel = 10,  // CONCURRENT_KERNEL
  Overhead = 17,
  MemcpyPeer = 22,
  Synchronization = 38,
  ExternalCorrelation = 39,
  GraphTrace = 51,
};

inline constexpr uint32_t kFlushForced = 1;
inline constexpr uint32_t kAttributeZeroedBuffers = 5;
inline constexpr uint32_t kThreadIdsOfSystem = 1;
inline constexpr uint32_t kExternalCustom2 = 5;  // CUpti_ExternalCorrelationKind
inline constexpr uint32_t kDomainDriver = 1, kDomainRuntime = 2;  // CUpti_CallbackDomain

struct SubscriberParams {  // CUpti_SubscriberParams
  size_t struct_size;
  const char* name;
  char* old_name;
  size_t old_name_bytes;
};

using Subscriber = struct SubscriberHandle*;
using Context = void*;
using Callback = void (*)(void* user, uint32_t domain, uint32_t id, const void* data);
using BufferRequested = void (*)(uint8_t** buffer, size_t* bytes, size_t* records_max);
using BufferCompleted = void (*)(Context context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t valid);

// The functions of one loaded library. Those that may be missing say so.
struct Functions {
  Result (*get_version)(uint32_t*);
  Result (*get_result_string)(Result, const char**);
  Result (*get_timestamp)(uint64_t*);
  Result (*subscribe)(Subscriber*, Callback, void*);
  Result (*subscribe_v2)(Subscriber*, Callback, void*, SubscriberParams*);  // may be null: CUDA 12
  Result (*unsubscribe)(Subscriber);
  Result (*register_callbacks)(BufferRequested, BufferCompleted);
  Result (*enable)(Activity);
  Result (*disable)(Activity);
  Result (*flush_all)(uint32_t flags);
  Result (*next_record)(uint8_t* buffer, size_t valid, uint8_t** record);
  Result (*dropped_records)(Context, uint32_t stream, size_t* count);
  Result (*set_attribute)(uint32_t attribute, size_t* bytes, void* value);
  Result (*set_thread_id_type)(uint32_t type);                                // may be null
  Result (*push_external)(uint32_t kind, uint64_t id);                        // may be null
  Result (*pop_external)(uint32_t kind, uint64_t* last);                      // may be null
  Result (*callback_name)(uint32_t domain, uint32_t id, const char** name);  // may be null
  Result (*enable_domain)(uint32_t on, Subscriber, uint32_t domain);         // may be null
  Result (*finalize)();                                                      // may be null
};

template <typename T>
T field(const uint8_t* record, size_t offset) {
  T value;
  std::memcpy(&value, record + offset, sizeof value);
  return value;
}

// Offsets, by record. How much of each is read stands in walk.cpp.
struct kernel {
  static constexpr size_t kRegisters = 6, kStart = 16, kEnd = 24, kDevice = 40, kContext = 44, kStream = 48, kGrid = 52,
                          kBlock = 64, kStaticShared = 76, kDynamicShared = 80, kCorrelation = 92, kName = 104,
                          kGraphNode = 144, kGraph = 156;
};
struct copy {
  static constexpr size_t kKind = 4, kFrom = 5, kTo = 6, kBytes = 8, kStart = 16, kEnd = 24, kDevice = 32, kContext = 36, kStream = 40,
                          kCorrelation = 44, kGraphNode = 64, kGraph = 72;
};
struct peer_copy : copy {  // differs behind the stream
  static constexpr size_t kCorrelation = 60, kGraphNode = 72, kGraph = 80;
};
struct set {
  static constexpr size_t kBytes = 8, kStart = 16, kEnd = 24, kDevice = 32, kContext = 36, kStream = 40,
                          kCorrelation = 44, kGraphNode = 64, kGraph = 72;
};
struct call {
  static constexpr size_t kId = 4, kStart = 8, kEnd = 16, kThread = 28, kCorrelation = 32, kReturned = 36;
};
struct sync {
  static constexpr size_t kType = 4, kStart = 8, kEnd = 16, kCorrelation = 24, kContext = 28, kStream = 32;
};
struct graph {
  static constexpr size_t kCorrelation = 4, kStart = 8, kEnd = 16, kDevice = 24, kGraph = 28, kContext = 32,
                          kStream = 36;
};
struct overhead {
  static constexpr size_t kKind = 4, kThread = 16, kStart = 24, kEnd = 32;
};
struct external {
  static constexpr size_t kKind = 4, kId = 8, kCorrelation = 16;
};

}  // namespace profd::cupti
