#include "encoder_attributes.h"

#include <limits>

namespace profd::encoder {
namespace {

constexpr std::size_t kRecordHeader = 4;  // u8 type, u8 0, u16 length
constexpr std::uint64_t kUnknown = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::min());

template <typename T>
T read(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::uint64_t hash(std::string_view bytes) {
  std::uint64_t found = bytes.size();
  while (bytes.size() >= 8) {
    found = (found ^ read<std::uint64_t>(bytes, 0)) * 0x9E3779B97F4A7C15u;
    found ^= found >> 32;
    bytes.remove_prefix(8);
  }
  for (const char byte : bytes) found = (found ^ static_cast<std::uint8_t>(byte)) * 0x9E3779B97F4A7C15u;
  return found ^ found >> 29;
}

// The records of an extension, one after the other.
class Records {
 public:
  explicit Records(std::string_view extension) : rest_(extension) {}

  // False: at the end, or `malformed`.
  bool next(arena::Ext& type, std::string_view& bytes) {
    if (rest_.size() < kRecordHeader || rest_[0] == 0) return false;
    const auto length = read<std::uint16_t>(rest_, 2);
    if (length > rest_.size() - kRecordHeader) {
      malformed = true;
      return false;
    }
    type = static_cast<arena::Ext>(rest_[0]);
    bytes = rest_.substr(kRecordHeader, length);
    rest_.remove_prefix(kRecordHeader + length);
    return true;
  }

  bool malformed = false;

 private:
  std::string_view rest_;
};

}  // namespace

void Blobs::clear() {
  for (const std::uint32_t at : used_) table_[at] = 0;
  used_.clear();
  blobs_.clear();
}

std::uint32_t Blobs::place(std::string_view blob) {
  std::size_t at = hash(blob) % kSlots;
  for (; table_[at] != 0; at = (at + 1) % kSlots) {
    if (blobs_[table_[at] - 1] == blob) return table_[at] - 1;
  }
  blobs_.push_back(blob);
  used_.push_back(static_cast<std::uint32_t>(at));
  table_[at] = static_cast<std::uint32_t>(blobs_.size());
  return table_[at] - 1;
}

void Blobs::write(Bytes& out) const {
  out.varint(blobs_.size());
  for (const auto& blob : blobs_) out.varint(blob.size());
  for (const auto& blob : blobs_) out.append(blob);
}

void Attributes::clear() {
  for (Attribute& attribute : attributes_) attribute.clear();
  inputs_.clear();
  args_.clear();
  last_sequence_ = last_impl_ = last_storage_ = 0;
  last_gpu_ = {};
}

void Attributes::payload(std::uint32_t slot, std::uint64_t payload) {
  const std::uint64_t sequence = payload & arena::kSequenceMask, thread = payload >> 40;
  if (sequence != 0) {
    of(kSequence).at(slot).svarint(sequence - 1 - last_sequence_);
    last_sequence_ = sequence - 1;
  }
  if (thread != 0) of(kForwardThread).at(slot).varint(thread);
}

bool Attributes::extension(std::uint32_t slot, std::string_view extension, std::uint64_t strings_end,
                           std::vector<std::uint32_t>& strings) {
  Records records(extension);
  arena::Ext type;
  std::string_view bytes;
  unsigned seen = 0;  // an attribute has one value per slot
  while (records.next(type, bytes)) {
    const unsigned bit = static_cast<unsigned>(type) < 32 ? 1u << static_cast<unsigned>(type) : 0;
    if ((seen & bit) != 0 || !record(slot, type, bytes, strings_end, strings)) return false;
    seen |= bit;
  }
  return !records.malformed;
}

bool Attributes::record(std::uint32_t slot, arena::Ext type, std::string_view bytes, std::uint64_t strings_end,
                        std::vector<std::uint32_t>& strings) {
  switch (type) {
    case arena::Ext::Inputs:
      of(kInputs).at(slot).varint(inputs_.place(bytes));
      return true;
    case arena::Ext::Args:
      of(kArgs).at(slot).varint(args_.place(bytes));
      return true;
    case arena::Ext::Memory:
      return memory(slot, bytes);
    case arena::Ext::Module:
    case arena::Ext::Stack: {
      if (bytes.size() != 4) return false;
      const auto id = read<std::uint32_t>(bytes, 0);
      if (id >= strings_end) return false;
      strings.push_back(id);
      of(type == arena::Ext::Module ? kModule : kStack).at(slot).varint(id);
      return true;
    }
    case arena::Ext::ForwardThread:
      // The payload may have it too: what did not fit there is right.
      if (bytes.size() != 8 || of(kForwardThread).next > slot) return false;
      of(kForwardThread).at(slot).varint(read<std::uint64_t>(bytes, 0));
      return true;
    case arena::Ext::DebugHandle:
      if (bytes.size() != 8) return false;
      of(kDebugHandle).at(slot).svarint(read<std::uint64_t>(bytes, 0));
      return true;
    case arena::Ext::Flops:
      if (bytes.size() != 8) return false;
      of(kFlops).at(slot).f64(read<std::uint64_t>(bytes, 0));
      return true;
    case arena::Ext::TensorIds:
      return tensor_ids(slot, bytes);
    case arena::Ext::ExternalTime:
      return bytes.size() == 16;  // see external_time
    case arena::Ext::Gpu:
      return gpu(slot, bytes);
    default:
      return false;
  }
}

bool Attributes::memory(std::uint32_t slot, std::string_view bytes) {
  if (bytes.size() != 24) return false;
  const auto allocated = read<std::uint64_t>(bytes, 8), reserved = read<std::uint64_t>(bytes, 16);
  Bytes& out = of(kMemory).at(slot);
  out.u8(read<std::uint8_t>(bytes, 0));
  out.svarint(static_cast<std::uint64_t>(std::int64_t{read<std::int16_t>(bytes, 2)}));
  out.u8(static_cast<std::uint8_t>((allocated != kUnknown ? 1 : 0) | (reserved != kUnknown ? 2 : 0)));
  if (allocated != kUnknown) out.svarint(allocated);
  if (reserved != kUnknown) out.svarint(reserved);
  return true;
}

bool Attributes::tensor_ids(std::uint32_t slot, std::string_view bytes) {
  if (bytes.size() % 16 != 0) return false;
  Bytes& out = of(kTensorIds).at(slot);
  out.varint(bytes.size() / 16);
  for (std::size_t at = 0; at < bytes.size(); at += 16) {
    const auto impl = read<std::uint64_t>(bytes, at), storage = read<std::uint64_t>(bytes, at + 8);
    out.svarint(impl - last_impl_);
    out.svarint(storage - last_storage_);
    last_impl_ = impl, last_storage_ = storage;
  }
  return true;
}

bool Attributes::gpu(std::uint32_t slot, std::string_view bytes) {
  arena::GpuRecord now{};
  const bool whole = bytes.size() == sizeof now;
  if (!whole && bytes.size() != arena::kGpuRecordShort) return false;
  std::memcpy(&now, bytes.data(), bytes.size());
  const arena::GpuRecord& last = last_gpu_;
  Bytes& out = of(kGpu).at(slot);
  out.u8(whole ? 17 : 9);
  const auto less = [&](std::uint64_t value, std::uint64_t before) { out.svarint(value - before); };
  less(now.correlation, last.correlation);
  less(now.device, last.device);
  less(now.context, last.context);
  less(now.stream, last.stream);
  less(now.tid, last.tid);
  less(now.detail, last.detail);
  less(now.bytes, last.bytes);
  less(now.graph_node, last.graph_node);
  less(now.graph, last.graph);
  if (whole) {
    less(now.registers, last.registers);
    for (int axis = 0; axis < 3; ++axis) less(now.grid[axis], last.grid[axis]);
    for (int axis = 0; axis < 3; ++axis) less(now.block[axis], last.block[axis]);
    less(now.shared, last.shared);
    last_gpu_ = now;
  } else {
    std::memcpy(&last_gpu_, &now, arena::kGpuRecordShort);  // a kernel is like the kernel before it
  }
  return true;
}

void Attributes::write(Bytes& body) {
  for (unsigned tag = kSequence; tag <= kGpu; ++tag) {
    Attribute& attribute = of(static_cast<Tag>(tag));
    if (attribute.count == 0) continue;
    section_.clear();
    section_.varint(attribute.count);
    section_.append(attribute.slots);
    if (tag == kInputs) inputs_.write(section_);
    if (tag == kArgs) args_.write(section_);
    section_.append(attribute.values);
    body.section(tag, section_);
  }
}

bool external_time(std::string_view extension, std::uint64_t& start, std::uint64_t& end) {
  Records records(extension);
  arena::Ext type;
  std::string_view bytes;
  while (records.next(type, bytes)) {
    if (type != arena::Ext::ExternalTime || bytes.size() != 16) continue;
    start = read<std::uint64_t>(bytes, 0), end = read<std::uint64_t>(bytes, 8);
    return true;
  }
  return false;
}

}  // namespace profd::encoder
