// A value for each of many ids that come in order, as correlation ids and sequence numbers do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "probing.h"

namespace profd {

struct Key {
  std::int64_t id = 0;
  std::int32_t group = 0;  // what it is an id in: an input, a thread
};

// A value for each key; single entries are never removed. Ids come in order, so neighbours share a
// page of eight values and only pages are hashed: 1M launches and device rows in order took 94 ns a
// row with every id hashed for itself.
template <typename Value>
class IdTable {
 public:
  Value* find(const Key& key) {
    if (!is_of(found_, key)) {
      const Slot& slot = slots_.of(of_page(key));
      if (slot.is_free()) return nullptr;
      found_ = slot;
    }
    Page& page = pages_[found_.page];
    return page.used & bit(key) ? &page.values[within(key)] : nullptr;
  }

  Value& at(const Key& key) {
    if (!is_of(added_, key)) {
      slots_.make_room(pages_.size() + 1);
      Slot& slot = slots_.of(of_page(key));
      if (slot.is_free()) {
        slot = of_page(key, static_cast<std::uint32_t>(pages_.size()));
        pages_.emplace_back();
      }
      added_ = slot;
    }
    Page& page = pages_[added_.page];
    size_ += (page.used & bit(key)) == 0;
    page.used |= bit(key);
    return page.values[within(key)];
  }

  std::size_t size() const { return size_; }

  void clear() {
    slots_ = Probing<Slot>(kLeast);
    pages_.clear();
    found_ = added_ = {};
    size_ = 0;
  }

  template <typename Visit>
  void each(Visit visit) {
    for (Page& page : pages_) {
      for (int i = 0; i < kPage; ++i) {
        if (page.used & (1U << i)) visit(page.values[i]);
      }
    }
  }

 private:
  static constexpr std::size_t kLeast = 1024;
  static constexpr int kPageBits = 3;
  static constexpr int kPage = 1 << kPageBits;
  static constexpr std::uint32_t kNoPage = 0xffffffff;  // far beyond what launches_max lets in

  struct Slot {
    std::int64_t block = 0;
    std::int32_t group = 0;
    std::uint32_t page = kNoPage;

    bool is_free() const { return page == kNoPage; }
    bool same_key(const Slot& other) const { return block == other.block && group == other.group; }
    std::uint64_t hash() const {
      return spread(static_cast<std::uint64_t>(block), static_cast<std::uint64_t>(group) << 1);
    }
  };

  struct Page {
    std::uint32_t used = 0;
    Value values[kPage]{};
  };

  static Slot of_page(const Key& key, std::uint32_t page = kNoPage) {
    return {key.id >> kPageBits, key.group, page};
  }

  // Whether the key is on this page: on the one that was used last it mostly is.
  static bool is_of(const Slot& slot, const Key& key) {
    return !slot.is_free() && slot.same_key(of_page(key));
  }

  static int within(const Key& key) { return static_cast<int>(key.id & (kPage - 1)); }
  static std::uint32_t bit(const Key& key) { return 1U << within(key); }

  Probing<Slot> slots_{kLeast};
  std::vector<Page> pages_;
  Slot found_, added_;  // of the last find() and at()
  std::size_t size_ = 0;
};

}  // namespace profd
