// The attributes of a chunk's events: what some of them have beside a name and times.
#include <algorithm>

#include "chunk_reader.h"

namespace profd::scan {
namespace {

constexpr std::int64_t kUnknownTotal = kAbsent;

}  // namespace

bool ChunkReader::add_attributes(const ChunkPlace& place, std::size_t first) {
  args_.clear();
  for (unsigned tag = kSequenceSection; tag < kSections; ++tag) {
    if (!body_.has(tag) || tag == kLossesSection) continue;
    Cursor cursor(body_[tag]);
    if (!read_slots(cursor, place.slots)) return false;
    for (auto& row : rows_) row = row < 0 ? -1 : row + static_cast<std::int64_t>(first);
    if (tag == kInputsSection && !read_blobs(cursor, inputs)) return false;
    if (tag == kArgsSection && !read_blobs(cursor, args)) return false;
    if (!read_values(cursor, tag, place.space)) return false;
  }
  put_args();
  return true;
}

// In the order of their rows, as columns have them; a row has one set of arguments.
void ChunkReader::put_args() {
  std::stable_sort(args_.begin(), args_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [row, code] : args_) {
    if (!columns.args.rows.empty() && columns.args.rows.back() == row) continue;
    columns.args.put(row, code);
  }
}

// The rows of an attribute's slots; a slot that is no event has none.
bool ChunkReader::read_slots(Cursor& cursor, std::uint32_t slots) {
  rows_.assign(cursor.count(2), -1);
  std::uint64_t slot = 0;
  for (auto& row : rows_) {
    const std::uint64_t gap = cursor.varint();
    if (gap >= slots || slot + gap >= slots) return false;
    slot += gap;
    row = row_of_slot_[slot];
    if (row < 0) ++counted["stray_attribute"];
    ++slot;
  }
  return !cursor.bad();
}

bool ChunkReader::read_blobs(Cursor& cursor, Interner& into) {
  std::vector<std::uint64_t> lengths(cursor.count());
  for (auto& length : lengths) length = cursor.varint();
  codes_.clear();
  for (const std::uint64_t length : lengths) {
    const std::string_view blob = cursor.bytes(length);
    if (cursor.bad()) return false;
    const std::int32_t code = into.code(blob);
    if (code < 0) ++counted["arguments_dropped"];
    codes_.push_back(std::max(code, kNoCode));
  }
  return !cursor.bad();
}

bool ChunkReader::read_values(Cursor& cursor, unsigned tag, std::uint32_t space) {
  std::uint64_t sequence = 0, impl = 0, storage = 0;
  GpuFields gpu{};
  for (const std::int64_t row : rows_) {
    const bool there = row >= 0;
    const auto at = static_cast<std::size_t>(row);
    const auto number = [&](OptionalColumn<std::int64_t>& column, std::uint64_t value) {
      if (there) column.put(at, static_cast<std::int64_t>(value));
    };
    const auto string = [&](OptionalColumn<std::int32_t>& column, Dictionary dictionary) {
      const std::uint64_t id = cursor.varint();
      const std::int32_t code = id <= UINT32_MAX ? text(space, static_cast<std::uint32_t>(id), dictionary) : kNoCode;
      if (there && code >= 0) column.put(at, code);
    };
    switch (tag) {
      case kSequenceSection:
        number(columns.sequence, sequence += cursor.svarint());
        break;
      case kForwardThreadSection:
        number(columns.fwd_thread, cursor.varint());
        break;
      case kDebugHandleSection:
        number(columns.debug_handle, cursor.svarint());
        break;
      case kFlopsSection: {
        const double flops = cursor.f64();
        if (there) columns.flops.put(at, flops);
        break;
      }
      case kModuleSection:
        string(columns.module, kModuleDictionary);
        break;
      case kStackSection:
        string(columns.stack, kStackDictionary);
        break;
      case kMemorySection:
        read_memory(cursor, row);
        break;
      case kGpuSection:
        if (!read_gpu(cursor, row, gpu)) return false;
        break;
      case kTensorIdsSection: {
        const std::uint64_t tensors = cursor.count(2);
        if (tensors > kTensorsMax) ++counted["arguments_dropped"];
        for (std::uint64_t left = tensors; left > 0; --left) {
          impl += cursor.svarint(), storage += cursor.svarint();
          if (!there || tensors > kTensorsMax) continue;
          columns.impls.put(row, static_cast<std::int64_t>(impl));
          columns.storages.put(row, static_cast<std::int64_t>(storage));
        }
        break;
      }
      default: {  // inputs and arguments
        const std::uint64_t place = cursor.varint();
        if (place >= codes_.size()) return false;
        const std::int32_t code = codes_[place];
        if (!there || code < 0) break;
        if (tag == kInputsSection) {
          columns.inputs.put(at, code);
        } else {
          args_.emplace_back(row, code);
        }
      }
    }
    if (cursor.bad()) return false;
  }
  return cursor.done();
}

void ChunkReader::read_memory(Cursor& cursor, std::int64_t row) {
  const std::uint8_t type = cursor.u8();
  const std::uint64_t device = cursor.svarint();
  const std::uint8_t bits = cursor.u8();
  const std::uint64_t allocated = bits & 1 ? cursor.svarint() : static_cast<std::uint64_t>(kUnknownTotal);
  const std::uint64_t reserved = bits & 2 ? cursor.svarint() : static_cast<std::uint64_t>(kUnknownTotal);
  if (row < 0) return;
  const auto at = static_cast<std::size_t>(row);
  columns.device_type[at] = type <= static_cast<std::uint8_t>(DeviceType::kTpu) ? type : 0;
  columns.device.put(at, static_cast<std::int64_t>(device));
  columns.total_allocated.put(at, static_cast<std::int64_t>(allocated));
  columns.total_reserved.put(at, static_cast<std::int64_t>(reserved));
}

bool ChunkReader::read_gpu(Cursor& cursor, std::int64_t row, GpuFields& fields) {
  const std::uint8_t count = cursor.u8();
  if (count != kShortRecord && count != kGpuFields) return false;
  for (unsigned field = 0; field < count; ++field) fields[field] += cursor.svarint();
  if (row >= 0) put_gpu(fields, static_cast<std::size_t>(row), count == kGpuFields);
  return true;
}

void ChunkReader::put_gpu(const GpuFields& fields, std::size_t row, bool kernel) {
  const auto kind = static_cast<Kind>(columns.kind[row]);
  if (kind == Kind::kCounter) {  // the device time of an op
    if (fields[kGpuBytes] != 0) columns.external.put(row, static_cast<std::int64_t>(fields[kGpuBytes]));
    columns.device.put(row, static_cast<std::int64_t>(fields[kGpuDevice]));
    return;
  }
  const bool call = kind == Kind::kRuntime || kind == Kind::kDriver;
  if (!call && (kind < Kind::kKernel || kind > Kind::kOverhead)) return;  // of something else
  const auto number = [&](GpuField field) { return static_cast<std::int64_t>(fields[field]); };
  columns.correlation.put(row, number(kCorrelationId));
  if (call) {
    columns.thread[row] = thread(process_, fields[kTid]);
    if (fields[kGpuBytes] != 0) columns.external.put(row, number(kGpuBytes));
    return;
  }
  if (kind == Kind::kOverhead) return;
  // As in Kineto's files a GPU is a process and its streams are the threads; no stream in particular is -1.
  const bool whole_device = fields[kGpuStream] == UINT32_MAX;
  const std::int32_t gpu = process(true, fields[kGpuDevice]);
  columns.process[row] = gpu;
  columns.thread[row] = thread(gpu, whole_device ? UINT64_MAX : fields[kGpuStream]);
  columns.device_type[row] = static_cast<std::uint8_t>(DeviceType::kCuda);
  columns.device.put(row, number(kGpuDevice));
  columns.context.put(row, number(kGpuContext));
  columns.stream.put(row, whole_device ? -1 : number(kGpuStream));
  if (kind == Kind::kMemcpy || kind == Kind::kMemset) columns.bytes.put(row, number(kGpuBytes));
  gpu_args(fields, row, kernel);
}

void ChunkReader::gpu_args(const GpuFields& fields, std::size_t row, bool kernel) {
  std::string text;
  const auto member = [&](const char* key, const std::string& value) {
    text += text.empty() ? "{\"" : ", \"";
    text.append(key).append("\": ").append(value);
  };
  const auto axes = [&](unsigned first) {
    return "[" + std::to_string(fields[first]) + ", " + std::to_string(fields[first + 1]) + ", " +
           std::to_string(fields[first + 2]) + "]";
  };
  if (kernel) {
    member("grid", axes(kGrid));
    member("block", axes(kBlock));
    member("registers per thread", std::to_string(fields[kRegisters]));
    member("shared memory", std::to_string(fields[kShared]));
  }
  if (fields[kGraph] != 0) member("graph id", std::to_string(fields[kGraph]));
  if (fields[kGraphNode] != 0) member("graph node id", std::to_string(fields[kGraphNode]));
  if (text.empty()) return;
  const std::int32_t code = args.code(text += '}');
  if (code < 0) {
    ++counted["arguments_dropped"];
  } else {
    args_.emplace_back(static_cast<std::int64_t>(row), code);
  }
}

}  // namespace profd::scan
