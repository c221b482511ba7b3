// The arena's string area: append-only, every string once. Lookups take no lock; what they read was published before.
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "session.h"

namespace profd::recorder {

namespace {

// Open addressing; 0 is an empty entry. An older table stays until the arena is let go of, since lookups may be in it.
struct Table {
  struct Entry {
    std::atomic<uint64_t> key{0};  // hash << 32 | id
    uint32_t bytes = 0;            // ours: the arena's own length could be changed by its reader
  };
  explicit Table(uint32_t entries) : mask(entries - 1), entries(new (std::nothrow) Entry[entries]) {}
  uint32_t mask;
  std::unique_ptr<Entry[]> entries;
};

constexpr uint32_t kFirstEntries = 512;
constexpr uint64_t kResidentStep = 64 * 1024;

pthread_mutex_t writer = PTHREAD_MUTEX_INITIALIZER;
std::atomic<Table*> table{nullptr};
std::vector<std::unique_ptr<Table>>* tables = nullptr;  // under writer; the last is the current one
uint32_t used = 0;
uint64_t tail = 0;
uint64_t resident_bytes = 0;  // bytes of the area that have their memory

class Lock {
 public:
  Lock() { pthread_mutex_lock(&writer); }
  ~Lock() { pthread_mutex_unlock(&writer); }
};

uint32_t hash_of(const char* text, size_t bytes) {
  uint64_t hash = 0x9e3779b97f4a7c15 ^ bytes;
  while (bytes >= 8) {
    uint64_t word;
    std::memcpy(&word, text, 8);
    hash = (hash ^ word) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
    text += 8;
    bytes -= 8;
  }
  uint64_t word = 0;
  std::memcpy(&word, text, bytes);
  hash = (hash ^ word) * 0xc4ceb9fe1a85ec53;
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

const char* text_of(uint32_t id) {
  return reinterpret_cast<const char*>(mapped.strings()) + uint64_t{id} * arena::kStringAlign + sizeof(uint32_t);
}

uint32_t find(const Table& in, uint32_t hash, const char* text, size_t bytes) {
  for (uint32_t i = hash & in.mask;; i = (i + 1) & in.mask) {
    const uint64_t key = in.entries[i].key.load(std::memory_order_acquire);
    if (key == 0) return arena::kNoName;
    if (key >> 32 != hash || in.entries[i].bytes != bytes) continue;
    const uint32_t id = static_cast<uint32_t>(key);
    if (std::memcmp(text_of(id), text, bytes) == 0) return id;
  }
}

void insert(Table& in, uint64_t key, uint32_t bytes) {
  uint32_t i = static_cast<uint32_t>(key >> 32) & in.mask;
  while (in.entries[i].key.load(std::memory_order_relaxed)) i = (i + 1) & in.mask;
  in.entries[i].bytes = bytes;
  in.entries[i].key.store(key, std::memory_order_release);
}

bool add_table(uint32_t entries) {
  std::unique_ptr<Table> bigger(new (std::nothrow) Table(entries));
  if (!bigger || !bigger->entries) return false;
  if (const Table* old = table.load(std::memory_order_relaxed)) {
    for (uint32_t i = 0; i <= old->mask; i++) {
      if (const uint64_t key = old->entries[i].key.load(std::memory_order_relaxed)) {
        insert(*bigger, key, old->entries[i].bytes);
      }
    }
  }
  table.store(bigger.get(), std::memory_order_release);
  tables->push_back(std::move(bigger));
  return true;
}

bool have_bytes(uint64_t end) {
  if (end <= resident_bytes) return true;
  const uint64_t more = std::min(arena::round_up(end, kResidentStep), mapped.where.strings_bytes);
  if (!make_resident(mapped.strings() + resident_bytes, more - resident_bytes)) return false;
  resident_bytes = more;
  return true;
}

uint32_t append_string(uint32_t hash, const char* text, uint32_t bytes) {
  const uint64_t size = arena::round_up(sizeof(uint32_t) + bytes, arena::kStringAlign);
  if (tail + size > mapped.where.strings_bytes || !have_bytes(tail + size)) return arena::kNoName;
  if (used * 4 > table.load(std::memory_order_relaxed)->mask * 3 && !add_table(2 * (table.load()->mask + 1))) {
    return arena::kNoName;
  }
  uint8_t* at = mapped.strings() + tail;
  std::memcpy(at, &bytes, sizeof bytes);
  std::memcpy(at + sizeof bytes, text, bytes);
  const uint32_t id = static_cast<uint32_t>(tail / arena::kStringAlign);
  tail += size;
  mapped.header()->strings_tail.store(tail, std::memory_order_release);
  insert(*table.load(std::memory_order_relaxed), uint64_t{hash} << 32 | id, bytes);
  used++;
  return id;
}

// The longest prefix within the limit that does not end inside a UTF-8 character.
size_t bounded(const char* text, size_t bytes) {
  if (bytes <= arena::kStringBytesMax) return bytes;
  bytes = arena::kStringBytesMax;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) bytes--;
  return bytes;
}

}  // namespace

uint32_t intern_in_window(const char* text, size_t bytes) {
  bytes = bounded(text, bytes);
  if (bytes == 0) return arena::kNoName;
  const uint32_t hash = hash_of(text, bytes);
  if (const uint32_t id = find(*table.load(std::memory_order_acquire), hash, text, bytes)) return id;
  Lock lock;
  if (const uint32_t id = find(*table.load(std::memory_order_relaxed), hash, text, bytes)) return id;
  const uint32_t id = append_string(hash, text, static_cast<uint32_t>(bytes));
  if (id == arena::kNoName) lose(Lost::StringsFull, 1);
  return id;
}

void map_first_strings() {
  Lock lock;
  have_bytes(1);
}

uint32_t intern_string(Thread* thread, Session session, const char* text, size_t bytes) {
  Window window(thread);
  if (api.state.live.load(std::memory_order_relaxed) != session) return arena::kNoName;
  return intern_in_window(text, bytes);
}

bool reset_strings() {
  Lock lock;
  if (!tables) tables = new (std::nothrow) std::vector<std::unique_ptr<Table>>;
  if (!tables) return false;
  table.store(nullptr);
  tables->clear();
  used = 0;
  tail = arena::kStringAlign;  // the empty string
  resident_bytes = 0;
  return add_table(kFirstEntries);
}

void forget_strings(bool somebody_may_look) {
  Lock lock;
  table.store(nullptr);
  if (!tables) return;
  for (auto& old : *tables) {
    if (somebody_may_look) static_cast<void>(old.release());  // it costs a few kB for good
  }
  tables->clear();
}

void lock_strings() { pthread_mutex_lock(&writer); }
void unlock_strings() { pthread_mutex_unlock(&writer); }

}  // namespace profd::recorder
