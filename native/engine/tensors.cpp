// Which records speak of the same tensor: a union-find over storages, told apart where an address is used again.
#include "tensors.h"

#include "arrays.h"
#include "probing.h"

namespace profd {
namespace {

enum Action : std::uint8_t { kInput = 0, kAllocate = 1, kFree = 2 };

constexpr std::int32_t kNothing = -1;

// What is known of an address in a process; kNothing of one that is new. Entries stay: a freed address comes back.
class AddressTable {
 public:
  std::int32_t& at(std::int64_t pointer, std::int32_t process) {
    Slot* slot = &slots_.of({pointer, process});
    if (slot->is_free()) {
      if (slots_.make_room(++used_)) slot = &slots_.of({pointer, process});
      *slot = {pointer, process, kNothing};
    }
    return slot->value;
  }

 private:
  static constexpr std::size_t kLeast = 1024;
  static constexpr std::int32_t kUnused = -2;

  struct Slot {  // four to a cache line
    std::int64_t pointer = 0;
    std::int32_t process = 0;
    std::int32_t value = kUnused;

    bool is_free() const { return value == kUnused; }
    bool same_key(const Slot& other) const { return pointer == other.pointer && process == other.process; }
    std::uint64_t hash() const {
      return spread(static_cast<std::uint64_t>(pointer), static_cast<std::uint64_t>(process) << 1);
    }
  };

  Probing<Slot> slots_{kLeast};
  std::size_t used_ = 0;
};

class Islands {
 public:
  std::int32_t add() {
    parent_.push_back(static_cast<std::int32_t>(parent_.size()));
    return parent_.back();
  }

  std::int32_t find(std::int32_t one) {
    while (parent_[one] != one) {
      parent_[one] = parent_[parent_[one]];  // halves the way for those that come later
      one = parent_[one];
    }
    return one;
  }

  // The earlier storage stands for both, so that islands are numbered by their first storage.
  void join(std::int32_t a, std::int32_t b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

  std::size_t size() const { return parent_.size(); }

 private:
  std::vector<std::int32_t> parent_;
};

Out<std::int64_t> tensor_islands(In<std::int32_t> process, In<std::uint8_t> action, In<std::int64_t> impl, In<std::int64_t> storage) {
  const std::size_t n = process.shape(0);
  require_aligned(process, "process");
  require_column(action, n, "action");
  require_column(impl, n, "impl");
  require_column(storage, n, "storage");
  require(n < std::size_t{1} << 31, "there are too many records");
  Buffer<std::int64_t> island(n);
  {
    nb::gil_scoped_release release;
    Islands islands;
    AddressTable live, impls;  // storage of an address now; first storage that an impl had
    std::vector<std::uint8_t> of_tensor;
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t owner = process.data()[i];
      const std::uint8_t what = action.data()[i];
      require(what <= kFree, "an action is unknown");
      island[i] = kNoRow;
      if (storage.data()[i] == 0 || (what == kInput && impl.data()[i] == 0)) continue;  // undefined
      std::int32_t& now = live.at(storage.data()[i], owner);
      if (now == kNothing) {
        now = islands.add();
        of_tensor.push_back(0);
      }
      const std::int32_t storage_now = now;
      island[i] = storage_now;
      if (what == kFree) now = kNothing;
      if (what != kInput) continue;
      of_tensor[static_cast<std::size_t>(storage_now)] = 1;
      std::int32_t& first = impls.at(impl.data()[i], owner);
      if (first == kNothing) first = storage_now;
      if (first != storage_now) islands.join(first, storage_now);
    }
    std::vector<std::int64_t> number(islands.size(), kNoRow);
    std::int64_t next = 0;
    for (std::size_t i = 0; i < islands.size(); ++i) {
      // Memory that no op was given may be anything: it is no tensor.
      if (!of_tensor[i]) continue;
      std::int64_t& of_island = number[static_cast<std::size_t>(islands.find(static_cast<std::int32_t>(i)))];
      if (of_island == kNoRow) of_island = next++;
      number[i] = of_island;
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (island[i] != kNoRow) island[i] = number[static_cast<std::size_t>(island[i])];
    }
  }
  return island.array();
}

}  // namespace

void bind_tensors(nb::module_& m) {
  m.def("tensor_islands", &tensor_islands, nb::arg("process").noconvert(), nb::arg("action").noconvert(),
        nb::arg("impl").noconvert(), nb::arg("storage").noconvert());
}

}  // namespace profd
