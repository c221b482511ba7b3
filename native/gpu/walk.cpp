#include "walk.h"

#include <array>
#include <cstdio>
#include <cstring>

namespace profd::cupti {

using arena::GpuRecord;
using arena::Kind;
using recorder::Session;
using recorder::Thread;

namespace {

// Of the runtime's calls those that do nothing, and of the driver's those that launch nothing, are left out: a busy
// process makes thousands of them a second (libkineto leaves out the same).
constexpr const char* kIdleCalls[] = {"cudaGetDevice",      "cudaSetDevice",     "cudaGetLastError",
                                      "cudaPeekAtLastError", "cudaEventQuery",    "cudaEventCreate",
                                      "cudaEventCreateWithFlags", "cudaEventDestroy", "cudaEventRecord",
                                      "cudaDeviceGetAttribute", "cudaStreamIsCapturing", "cudaStreamGetCaptureInfo",
                                      "cudaStreamGetCaptureInfo_v2", "cudaFuncGetAttributes", "cudaFuncSetAttribute",
                                      "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
                                      "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
                                      "cudaGetDeviceCount", "cudaGetDeviceProperties_v2"};
constexpr size_t kCallsMax = 16 * 1024;  // names of calls that are kept: CUDA has some 1 200
constexpr const char* kLaunchWords[] = {"Launch", "Memcpy", "Memset"};

bool one_of_idle(const std::string& name) {
  for (const char* idle : kIdleCalls)
    if (name == idle) return true;
  return false;
}

bool launches_something(const std::string& name) {
  for (const char* word : kLaunchWords)
    if (name.find(word) != std::string::npos) return name.find("HostFunc") == std::string::npos;
  return false;
}

// Errors of cuda.h after which the context, and with it the device, does nothing more for this process.
bool is_fatal(uint32_t error) {
  switch (error) {
    case 214:  // memory
    case 220:  // NVLink
    case 700:  // illegal address
    case 702:  // timeout of a launch
    case 710:  // assertion
    case 714: case 715: case 716: case 717: case 718: case 719:  // a kernel's own faults
      return true;
    default: return false;
  }
}

// Not cudaStreamIsCapturing, which PyTorch asks before each allocation.
bool concerns_graphs(const std::string& name) {
  for (const char* word : {"Graph", "BeginCapture", "EndCapture"})
    if (name.find(word) != std::string::npos) return true;
  return false;
}

// "cudaLaunchKernel_v7000" and "cudaMemcpyAsync_ptsz_v7000" as people call them.
std::string plain(const char* text) {
  std::string name = text;
  const auto version = name.rfind("_v");
  if (version != std::string::npos && name.find_first_not_of("0123456789", version + 2) == std::string::npos &&
      name.size() > version + 4)
    name.resize(version);
  for (const char* suffix : {"_ptsz", "_ptds"})
    if (name.size() > 5 && name.compare(name.size() - 5, 5, suffix) == 0) name.resize(name.size() - 5);
  return name;
}

// As libkineto names them.
const char* copy_name(uint32_t kind) {
  switch (kind) {
    case 1: return "Memcpy HtoD";
    case 2: return "Memcpy DtoH";
    case 3: return "Memcpy HtoA";
    case 4: return "Memcpy AtoH";
    case 5: return "Memcpy AtoA";
    case 6: return "Memcpy AtoD";
    case 7: return "Memcpy DtoA";
    case 8: return "Memcpy DtoD";
    case 9: return "Memcpy HtoH";
    case 10: return "Memcpy PtoP";
    default: return "Memcpy";
  }
}

// CUpti_ActivityMemoryKind, as libkineto names it.
const char* memory_name(uint32_t kind) {
  switch (kind) {
    case 1: return "Pageable";
    case 2: return "Pinned";
    case 3: return "Device";
    case 4: return "Array";
    case 5: return "Managed";
    case 6: return "Device Static";
    case 7: return "Managed Static";
    default: return "Unknown";
  }
}

// "Memcpy HtoD (Pageable -> Device)", as libkineto has it; without the memories where CUPTI tells neither.
std::string_view full_copy_name(const uint8_t* from, std::array<char, 64>& room) {
  using at = cupti::copy;  // a copy between GPUs has them at the same place
  const auto source = field<uint8_t>(from, at::kFrom), target = field<uint8_t>(from, at::kTo);
  const char* copy = copy_name(field<uint8_t>(from, at::kKind));
  if (source == 0 && target == 0) return copy;
  const int length =
      std::snprintf(room.data(), room.size(), "%s (%s -> %s)", copy, memory_name(source), memory_name(target));
  return {room.data(), static_cast<size_t>(length)};
}

const char* sync_name(uint32_t type) {
  switch (type) {
    case 1: return "Event Sync";
    case 2: return "Stream Wait Event";
    case 3: return "Stream Sync";
    case 4: return "Context Sync";
    default: return "Sync";
  }
}

const char* overhead_name(uint32_t kind) {
  switch (kind) {
    case 1: return "Driver Compiler";
    case 1 << 16: return "Buffer Flush";
    case 2 << 16: return "Instrumentation";
    case 3 << 16: return "Resource";
    case 4 << 16: return "Runtime Triggered Module Loading";
    case 5 << 16: return "Lazy Function Loading";
    case 6 << 16: return "Command Buffer Full";
    case 7 << 16: return "Activity Buffer Request";
    case 8 << 16: return "UVM Activity Init";
    default: return "Overhead";
  }
}

// Counts are read by any thread and written by the one that has the lock: no bus lock for each record.
void bump(std::atomic<uint64_t>& count) {
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// Where work on a device ran, and what launched it.
template <typename At>
GpuRecord on_device(const uint8_t* from) {
  GpuRecord gpu{};
  gpu.correlation = field<uint32_t>(from, At::kCorrelation);
  gpu.device = field<uint32_t>(from, At::kDevice);
  gpu.context = field<uint32_t>(from, At::kContext);
  gpu.stream = field<uint32_t>(from, At::kStream);
  gpu.graph = field<uint32_t>(from, At::kGraph);
  return gpu;
}

}  // namespace

const Walker::Reader Walker::kReaders[] = {
    {Activity::Kernel, cupti::kernel::kGraph + 4, &Walker::kernel},
    {Activity::Runtime, cupti::call::kReturned + 4, &Walker::call<kDomainRuntime>},
    {Activity::Driver, cupti::call::kReturned + 4, &Walker::call<kDomainDriver>},
    {Activity::ExternalCorrelation, cupti::external::kCorrelation + 4, &Walker::external},
    {Activity::Memcpy, cupti::copy::kGraph + 4, &Walker::copy<cupti::copy>},
    {Activity::MemcpyPeer, cupti::peer_copy::kGraph + 4, &Walker::copy<cupti::peer_copy>},
    {Activity::Memset, cupti::set::kGraph + 4, &Walker::set},
    {Activity::GraphTrace, cupti::graph::kStream + 4, &Walker::graph},
    {Activity::Synchronization, cupti::sync::kStream + 4, &Walker::synchronization},
    {Activity::Overhead, cupti::overhead::kEnd + 8, &Walker::overhead},
};

void Walker::walk(uint8_t* buffer, size_t valid) {
  Buffer all = opened();
  std::lock_guard lock(mutex_);
  names_of(all.session);
  for (uint8_t* at = nullptr; cupti_.next_record(buffer, valid, &at) == kSuccess && at;)
    record(all, at, static_cast<size_t>(buffer + valid - at));
}

void Walker::take(const uint8_t* const* records, size_t count) {
  Buffer all = opened();
  std::lock_guard lock(mutex_);
  names_of(all.session);
  for (size_t i = 0; i < count; i++) record(all, records[i], SIZE_MAX);
}

Walker::Buffer Walker::opened() const {
  const Session session = recorder::session_of(api_, recorder::kGpu);
  return {this_thread(session), session, clock_.line(), {}};
}

Thread* Walker::this_thread(Session session) const {
  static thread_local Thread** slot = nullptr;
  return session ? recorder::current_thread(api_, slot) : nullptr;
}

void Walker::names_of(Session session) {
  if (session != names_session_) calls_.clear(), names_session_ = session;  // string ids hold for one session
}

void Walker::dropped(uint64_t records) {
  counts.dropped.fetch_add(records, std::memory_order_relaxed);
  this_thread(recorder::session_of(api_, recorder::kGpu));  // one without a queue would lose them as a foreign thread
  api_.lose(arena::Lost::CuptiDropped, records);
}

void Walker::reset_counts() {
  for (auto* count : {&counts.records, &counts.events, &counts.device, &counts.launches, &counts.graph_calls,
                      &counts.bad_times, &counts.foreign_times, &counts.gone_names, &counts.external, &counts.filtered,
                      &counts.unknown, &counts.late, &counts.error, &counts.dropped})
    count->store(0, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  externals_.fill({});
}

void Walker::record(Buffer& buffer, const uint8_t* from, size_t room) {
  bump(counts.records);
  if (!buffer.thread) return bump(counts.late);
  const auto kind = static_cast<Activity>(field<uint32_t>(from, 0));
  for (const Reader& reader : kReaders) {
    if (reader.kind != kind) continue;
    if (room < reader.bytes) break;
    return (this->*reader.read)(buffer, from);
  }
  bump(counts.unknown);
}

void Walker::kernel(Buffer& buffer, const uint8_t* from) {
  using at = cupti::kernel;
  GpuRecord gpu = on_device<at>(from);
  gpu.graph_node = field<uint64_t>(from, at::kGraphNode);
  gpu.registers = field<uint16_t>(from, at::kRegisters);
  std::memcpy(gpu.grid, from + at::kGrid, sizeof gpu.grid);
  std::memcpy(gpu.block, from + at::kBlock, sizeof gpu.block);
  gpu.shared = field<uint32_t>(from, at::kStaticShared) + field<uint32_t>(from, at::kDynamicShared);
  append(buffer, Kind::Kernel, kernel_name(buffer, field<const char*>(from, at::kName)),
         field<uint64_t>(from, at::kStart), field<uint64_t>(from, at::kEnd), gpu, sizeof gpu);
}

// The pointer may be gone with its module: it is read now, and never again.
uint32_t Walker::kernel_name(Buffer& buffer, const char* name) {
  if (!name) return text(buffer, "(kernel without a name)");
  const std::string_view read = buffer.names.read(name, arena::kStringBytesMax);
  if (!read.empty()) return text(buffer, read);
  bump(counts.gone_names);
  return text(buffer, "(kernel of a module that was unloaded)");
}

template <typename At>
void Walker::copy(Buffer& buffer, const uint8_t* from) {
  GpuRecord gpu = on_device<At>(from);
  gpu.detail = field<uint8_t>(from, At::kKind);
  gpu.bytes = field<uint64_t>(from, At::kBytes);
  gpu.graph_node = field<uint64_t>(from, At::kGraphNode);
  std::array<char, 64> room;
  append(buffer, Kind::Memcpy, text(buffer, full_copy_name(from, room)), field<uint64_t>(from, At::kStart),
         field<uint64_t>(from, At::kEnd), gpu, arena::kGpuRecordShort);
}

void Walker::set(Buffer& buffer, const uint8_t* from) {
  using at = cupti::set;
  GpuRecord gpu = on_device<at>(from);
  gpu.bytes = field<uint64_t>(from, at::kBytes);
  gpu.graph_node = field<uint64_t>(from, at::kGraphNode);
  append(buffer, Kind::Memset, text(buffer, "Memset"), field<uint64_t>(from, at::kStart),
         field<uint64_t>(from, at::kEnd), gpu, arena::kGpuRecordShort);
}

void Walker::graph(Buffer& buffer, const uint8_t* from) {
  using at = cupti::graph;
  const GpuRecord gpu = on_device<at>(from);
  append(buffer, Kind::Graph, text(buffer, "CUDA graph"), field<uint64_t>(from, at::kStart),
         field<uint64_t>(from, at::kEnd), gpu, arena::kGpuRecordShort);
}

template <uint32_t kDomain>
void Walker::call(Buffer& buffer, const uint8_t* from) {
  using at = cupti::call;
  const Call which = call_of(buffer, kDomain, field<uint32_t>(from, at::kId));
  if (which.launches) bump(counts.launches);
  if (which.graphs) bump(counts.graph_calls);
  const auto returned = field<uint32_t>(from, at::kReturned);
  if (is_fatal(returned) && counts.error == 0) counts.error.store(returned, std::memory_order_relaxed);
  if (!which.wanted) {
    bump(counts.filtered);
    return;
  }
  GpuRecord gpu{};
  gpu.correlation = field<uint32_t>(from, at::kCorrelation);
  gpu.tid = field<uint32_t>(from, at::kThread);
  gpu.detail = returned;
  if (const External& last = externals_[gpu.correlation % externals_.size()];
      last.id != 0 && last.correlation == gpu.correlation) {
    gpu.bytes = last.id;
    bump(counts.external);
  }
  append(buffer, Kind::Api, which.name, field<uint64_t>(from, at::kStart), field<uint64_t>(from, at::kEnd), gpu,
         arena::kGpuRecordShort);
}

void Walker::external(Buffer&, const uint8_t* from) {
  using at = cupti::external;
  if (field<uint32_t>(from, at::kKind) != kExternalCustom2) return;  // Kineto's, or the program's own
  const auto correlation = field<uint32_t>(from, at::kCorrelation);
  externals_[correlation % externals_.size()] = {correlation, field<uint64_t>(from, at::kId)};
}

void Walker::synchronization(Buffer& buffer, const uint8_t* from) {
  using at = cupti::sync;
  GpuRecord gpu{};
  gpu.correlation = field<uint32_t>(from, at::kCorrelation);
  gpu.context = field<uint32_t>(from, at::kContext);
  gpu.stream = field<uint32_t>(from, at::kStream);
  gpu.detail = field<uint32_t>(from, at::kType);
  append(buffer, Kind::Sync, text(buffer, sync_name(gpu.detail)), field<uint64_t>(from, at::kStart),
         field<uint64_t>(from, at::kEnd), gpu, arena::kGpuRecordShort);
}

void Walker::overhead(Buffer& buffer, const uint8_t* from) {
  using at = cupti::overhead;
  GpuRecord gpu{};
  gpu.tid = field<uint32_t>(from, at::kThread);
  gpu.detail = field<uint32_t>(from, at::kKind);
  append(buffer, Kind::Overhead, text(buffer, overhead_name(gpu.detail)), field<uint64_t>(from, at::kStart),
         field<uint64_t>(from, at::kEnd), gpu, arena::kGpuRecordShort);
}

void Walker::append(Buffer& buffer, Kind kind, uint32_t name, uint64_t start, uint64_t end, const GpuRecord& gpu,
                    size_t bytes) {
  arena::Slot head{};
  const bool has_times = start != 0 && end >= start;
  if (!has_times || !buffer.line.unix_ns(start, end, &head.start, &head.end)) {
    bump(counts.bad_times);
    if (has_times) bump(counts.foreign_times);
    api_.lose(arena::Lost::CuptiBadTime, 1);
    return;
  }
  struct {
    uint8_t type = static_cast<uint8_t>(arena::Ext::Gpu), zero = 0;
    uint16_t length;
    GpuRecord gpu;
  } __attribute__((packed)) extension;
  extension.length = static_cast<uint16_t>(bytes);
  extension.gpu = gpu;
  head.name = name;
  head.kind = kind;
  if (!recorder::append(api_, buffer.thread, buffer.session, head, &extension, 4 + bytes)) return;  // counted there
  bump(counts.events);
  if (gpu.graph != 0) bump(counts.graph_calls);
  if (kind >= Kind::Kernel && kind != Kind::Sync && kind != Kind::Overhead)
    bump(counts.device);
}

Walker::Call Walker::call_of(const Buffer& buffer, uint32_t domain, uint32_t id) {
  const uint64_t key = uint64_t{domain} << 32 | id;
  if (const auto known = calls_.find(key); known != calls_.end()) return known->second;
  const char* told = nullptr;
  if (!cupti_.callback_name || cupti_.callback_name(domain, id, &told) != kSuccess) told = nullptr;
  const std::string name =
      told ? plain(told) : (domain == kDomainRuntime ? "CUDA runtime call " : "CUDA driver call ") + std::to_string(id);
  Call call;
  call.launches = launches_something(name);
  call.graphs = concerns_graphs(name);
  call.wanted = domain == kDomainRuntime ? !one_of_idle(name) : call.launches || !told;
  if (call.wanted) call.name = text(buffer, name);
  if (calls_.size() >= kCallsMax) calls_.clear();
  return calls_[key] = call;
}

uint32_t Walker::text(const Buffer& buffer, std::string_view text) {
  return recorder::intern(api_, buffer.thread, buffer.session, text.data(), text.size());
}

}  // namespace profd::cupti
