#include "names.h"

#include <algorithm>
#include <cstring>

#include "texts.h"

namespace profd::sampler {
namespace {

constexpr std::size_t kNowhere = ~std::size_t{0};
constexpr std::size_t kKeys = 32, kValues = 40;  // PyDictObject: ma_keys, ma_values
constexpr std::size_t kKeysHead = 32, kIndexBytes = 9, kKind = 10, kCount = 24;  // PyDictKeysObject
constexpr std::size_t kDictOffset = 288;  // PyTypeObject
constexpr std::uint64_t kManaged = 1 << 4, kInlineValues = 1 << 2;  // of its flags
constexpr std::size_t kObject = 16;
constexpr std::size_t kKeyBytes = 24;  // of a string that is looked for, at most
constexpr unsigned kAsciiOfOneByte = 1 << 2 | 1 << 5 | 1 << 6;

struct KeysHead {
  std::uint64_t references;
  std::uint8_t log2_size, log2_index_bytes, kind, unused;
  std::uint32_t version;
  std::int64_t usable, count;
};
static_assert(sizeof(KeysHead) == kKeysHead);

}  // namespace

// The entries of a table of keys, in order.
bool ThreadNames::read_keys(std::uint64_t keys, std::vector<Entry>& entries) {
  KeysHead head{};
  entries.clear();
  if (!read_value(process_, keys, head) || head.count < 0 || head.count > static_cast<std::int64_t>(kEntriesMax) ||
      head.log2_index_bytes > 32) {
    return false;
  }
  const auto count = static_cast<std::size_t>(head.count);
  const std::size_t words = head.kind == 0 ? 3 : 2;  // with the hash, where not all keys are strings
  static std::vector<std::uint64_t> room;
  room.resize(count * words);
  const std::uint64_t at = keys + kKeysHead + (std::uint64_t{1} << head.log2_index_bytes);
  if (count > 0 && !read_place(process_, at, room.data(), room.size() * kWord)) return false;
  for (std::size_t each = 0; each < count; ++each) {
    const std::uint64_t* const entry = &room[each * words];
    entries.push_back({words == 3 ? entry[0] : 0, entry[words - 2], entry[words - 1]});
  }
  return true;
}

bool ThreadNames::read_dict(std::uint64_t dict, std::vector<Entry>& entries) {
  std::uint64_t words[2] = {}, type = 0;  // keys, values
  if (!read_value(process_, dict + kTypeOffset, type) || type != python_.dict_type ||
      !read_value(process_, dict + kKeys, words) || !read_keys(words[0], entries)) {
    return false;
  }
  if (words[1] == 0 || entries.empty()) return true;
  // An object's attributes, with keys of its type.
  static std::vector<std::uint64_t> values;
  values.resize(entries.size());
  const bool behind_head = python_.layout.attributes == Layout::Attributes::kInline;
  if (!read_place(process_, words[1] + behind_head * kWord, values.data(), values.size() * kWord)) return false;
  for (std::size_t at = 0; at < values.size(); ++at) entries[at].value = values[at];
  return true;
}

// Of the entry with this key; kNowhere: there is none.
std::size_t ThreadNames::place_of(const std::vector<Entry>& entries, const char* key) {
  const std::size_t length = std::strlen(key), text = python_.layout.text;
  batch_.clear();
  // A shorter string may end where nothing more is mapped: then the next ones are read in another call.
  for (const Entry& entry : entries) batch_.add(entry.key + kLength, text - kLength);
  if (!batch_.run()) return kNowhere;
  for (std::size_t at = 0; at < entries.size(); ++at) {
    const char* const said = batch_.at(at);
    char found[kKeyBytes];
    if (said != nullptr && load<std::uint64_t>(said) == length &&
        (load<std::uint32_t>(said + kState - kLength) & kAsciiOfOneByte) == kAsciiOfOneByte &&
        read_place(process_, entries[at].key + text, found, length) && std::memcmp(found, key, length) == 0) {
      return at;
    }
  }
  return kNowhere;
}

std::uint64_t ThreadNames::value_of(std::uint64_t dict, const char* key) {
  if (!read_dict(dict, entries_)) return 0;
  const std::size_t place = place_of(entries_, key);
  return place == kNowhere ? 0 : entries_[place].value;
}

// It is made once, and stays.
std::uint64_t ThreadNames::active_threads(std::uint64_t interpreter) {
  if (active_ != 0 && of_interpreter_ == interpreter) return active_;
  std::uint64_t modules = 0, names = 0;
  if (!read_value(process_, interpreter + python_.layout.modules, modules)) return 0;
  const std::uint64_t threading = value_of(modules, "threading");
  if (threading == 0 || !read_value(process_, threading + kModuleDict, names)) return 0;
  of_interpreter_ = interpreter;
  active_ = value_of(names, "_active");
  return active_;
}

std::unordered_map<std::uint64_t, std::string> ThreadNames::find(std::uint64_t interpreter,
                                                                 const std::vector<std::uint64_t>& wanted) {
  std::unordered_map<std::uint64_t, std::string> found;
  std::vector<Entry> threads;
  places_.clear();
  const std::uint64_t active = interpreter == 0 ? 0 : active_threads(interpreter);
  if (active == 0) return found;
  if (!read_dict(active, threads)) {
    active_ = 0;
    return found;
  }
  for (const Entry& thread : threads) {
    // An int's hash is itself, below 2^61.
    if (thread.key == 0 || thread.hash == 0 || !std::binary_search(wanted.begin(), wanted.end(), thread.hash)) continue;
    std::string name;
    const std::uint64_t at = name_of(thread.value);
    if (at != 0 && read_text(process_, python_.layout, at, name)) found.emplace(thread.hash, std::move(name));
  }
  return found;
}

// Where the values of an object's attributes lie, in the order of its type's keys; 0: they are in a dictionary of its own.
std::uint64_t ThreadNames::values_of(std::uint64_t object, std::uint64_t flags, std::uint64_t& dict) {
  std::uint64_t before[2] = {};  // the two words that stand four and three words before it
  if (!read_value(process_, object - 4 * kWord, before)) return 0;
  dict = before[1];
  switch (python_.layout.attributes) {
    case Layout::Attributes::kValuesOrDict:
      return before[0];
    case Layout::Attributes::kTagged:
      return (before[1] & 1) != 0 ? before[1] + 1 : 0;
    case Layout::Attributes::kInline:
      break;
  }
  std::uint8_t head[4] = {};  // capacity, size, embedded, valid
  const bool inside = (flags & kInlineValues) != 0 && read_value(process_, object + kObject, head) && head[3] != 0;
  return inside ? object + kObject + kWord : 0;
}

std::uint64_t ThreadNames::name_of(std::uint64_t thread) {
  std::uint64_t type = 0, flags = 0, dict = 0, keys = 0, name = 0;
  if (!read_value(process_, thread + kTypeOffset, type) || !read_value(process_, type + kTypeFlags, flags)) return 0;
  if ((flags & kManaged) == 0) {
    std::int64_t offset = 0;
    if (!read_value(process_, type + kDictOffset, offset) || offset <= 0 ||
        !read_value(process_, thread + static_cast<std::uint64_t>(offset), dict)) {
      return 0;
    }
    return value_of(dict, "_name");
  }
  const std::uint64_t values = values_of(thread, flags, dict);
  if (values == 0) return value_of(dict, "_name");
  if (!read_value(process_, type + python_.layout.cached_keys, keys)) return 0;
  const auto [known, is_new] = places_.try_emplace(keys, kNowhere);
  if (is_new && read_keys(keys, entries_)) known->second = place_of(entries_, "_name");
  if (known->second == kNowhere || !read_value(process_, values + kWord * known->second, name)) return 0;
  return name;
}

}  // namespace profd::sampler
