#include "codes.h"

#include <algorithm>
#include <cstring>

#include "texts.h"

namespace profd::sampler {
namespace {

constexpr std::size_t kHashBytes = kHash + kWord;  // of a str, as far as its hash
constexpr std::size_t kInstructions = 16, kInstructionBytes = 2;  // of a code object: ob_size
constexpr int kTries = 3;

constexpr char kShim[] = "<shim>";  // the file of what CPython puts between two frames

std::size_t frame_bytes(const Layout& layout, const char* header) {
  const auto words = [header](std::size_t at) {
    return static_cast<std::size_t>(std::max(load<std::int32_t>(header + at), 0));
  };
  return kWord * (layout.frame_words != 0 ? words(layout.frame_words)
                                          : words(layout.locals) + words(layout.stack) + kOwnWords);
}

}  // namespace

std::string front_of(std::string_view file, std::int64_t line, std::string_view name) {
  std::string front = R"({"args":{"filename":")";
  front.append(file);
  front += R"(","line":)";
  front += std::to_string(line);
  front += R"(},"cat":"py-spy","name":")";
  front.append(name);
  front += R"(","ph":")";
  return front;
}

int Texts::number(std::string&& front) {
  const auto found = numbers_.find(front);
  if (found != numbers_.end()) return found->second;
  bytes_ += front.size();
  if (fronts_.size() >= kTextsMax || bytes_ > kTextBytesMax) return kNoText;
  const auto made = numbers_.emplace(std::move(front), static_cast<int>(fronts_.size())).first;
  fronts_.push_back(&made->first);
  return made->second;
}

void Codes::ask(std::uint64_t address, unsigned sample, Batch& batch) {
  const auto found = known_.find(address);
  if (found == known_.end() || found->second.asked == sample) return;
  Code& code = found->second;
  const Layout& layout = python_.layout;
  code.asked = sample;
  code.place = batch.add(address, kCodeBytes);
  if (is_numbered(code.header)) return;
  code.name_place = batch.add(load<std::uint64_t>(code.header + layout.name), kHashBytes);
  code.file_place = batch.add(load<std::uint64_t>(code.header + layout.file), kHashBytes);
}

// By a number that no other code object has.
bool Codes::is_numbered(const char* header) const {
  return python_.layout.version != 0 && load<std::uint32_t>(header + python_.layout.version) != 0;
}

// Its reference count changes, and some of what it counts by itself; what it is does not.
bool Codes::is_same(const Code& code, const char* header) const {
  const Layout& layout = python_.layout;
  const auto same = [&](std::size_t at, std::size_t bytes) {
    return std::memcmp(code.header + at, header + at, bytes) == 0;
  };
  return same(kTypeOffset, kWord) && same(kInstructions, kWord) && same(layout.file, kWord) && same(layout.name, kWord) && same(layout.line, 4) &&
         frame_bytes(layout, header) == code.frame_bytes && (layout.version == 0 || same(layout.version, 4));
}

void Codes::check(std::uint64_t address, unsigned sample, const Batch& batch) {
  const auto found = known_.find(address);
  if (found == known_.end() || found->second.asked != sample || found->second.checked == sample) return;
  Code& code = found->second;
  const char* const header = batch.at(code.place);
  if (header == nullptr || !is_same(code, header)) return;
  if (!is_numbered(header)) {
    const char* const name = batch.at(code.name_place);
    const char* const file = batch.at(code.file_place);
    if (name == nullptr || file == nullptr || load<std::uint64_t>(name + kHash) != code.hashes[0] ||
        load<std::uint64_t>(file + kHash) != code.hashes[1]) {
      return;
    }
  }
  code.checked = sample;
}

// The same for one that was not asked for.
bool Codes::is_still(std::uint64_t address, const Code& code) const {
  const Layout& layout = python_.layout;
  char header[kCodeBytes];
  if (!read_place(process_, address, header, sizeof header) || !is_same(code, header)) return false;
  if (is_numbered(header)) return true;
  std::uint64_t name = 0, file = 0;
  return read_value(process_, load<std::uint64_t>(header + layout.name) + kHash, name) &&
         read_value(process_, load<std::uint64_t>(header + layout.file) + kHash, file) && name == code.hashes[0] &&
         file == code.hashes[1];
}

const Code* Codes::get(std::uint64_t address, unsigned sample) {
  if (known_.size() >= kCodesMax) known_.clear();
  const auto [found, is_new] = known_.try_emplace(address);
  Code& code = found->second;
  if (!is_new && (code.checked == sample || is_still(address, code))) {
    code.checked = sample;
    return &code;
  }
  for (int tries = 0; tries < kTries; ++tries) {
    if (read(address, code)) {
      code.checked = sample;
      return &code;
    }
  }
  known_.erase(found);
  return nullptr;
}

// Its strings are its own only if it has them before and after they are read.
bool Codes::read(std::uint64_t address, Code& code) {
  const Layout& layout = python_.layout;
  if (!read_place(process_, address, code.header, kCodeBytes) ||
      load<std::uint64_t>(code.header + kTypeOffset) != python_.code_type) {
    return false;
  }
  code.frame_bytes = frame_bytes(layout, code.header);
  code.code_bytes = load<std::uint64_t>(code.header + kInstructions) * kInstructionBytes;
  static std::string name, file;
  const auto name_at = load<std::uint64_t>(code.header + layout.name);
  const auto file_at = load<std::uint64_t>(code.header + layout.file);
  const bool whole = read_text(process_, layout, name_at, name) && read_text(process_, layout, file_at, file) &&
                     read_value(process_, name_at + kHash, code.hashes[0]) &&
                     read_value(process_, file_at + kHash, code.hashes[1]);
  char again[kCodeBytes];
  if (!whole || !read_place(process_, address, again, sizeof again) || !is_same(code, again)) return false;
  code.text = kNoText;
  if (file.empty() || file == kShim) return true;
  code.text = texts_.number(front_of(file, load<std::int32_t>(code.header + layout.line), name));
  full_ = full_ || code.text == kNoText;
  return true;
}

}  // namespace profd::sampler
