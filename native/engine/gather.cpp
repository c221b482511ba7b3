// gather: rows of several arrays, as one array in another order. places: where each row went.
#include "gather.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <nanobind/stl/vector.h>

#include "arrays.h"

namespace profd {
namespace {

// One array after the other, as one: itself where there is only one.
template <typename Word>
class Joined {
 public:
  explicit Joined(const std::vector<AnyColumn>& parts) {
    for (const AnyColumn& part : parts) size_ += part.shape(0);
    if (parts.size() == 1) {
      data_ = static_cast<const Word*>(parts[0].data());
      return;
    }
    copy_.reset(new Word[size_ ? size_ : 1]);
    Word* at = copy_.get();
    for (const AnyColumn& part : parts) {
      if (part.shape(0)) std::memcpy(at, part.data(), part.shape(0) * sizeof(Word));
      at += part.shape(0);
    }
    data_ = copy_.get();
  }
  const Word* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::unique_ptr<Word[]> copy_;
  const Word* data_ = nullptr;
  std::size_t size_ = 0;
};

template <typename Word>
nb::object gather_words(const std::vector<AnyColumn>& parts, const In<std::int64_t>& order) {
  const std::size_t n = order.shape(0);
  Buffer<Word> out(n);
  {
    nb::gil_scoped_release release;
    const Joined<Word> from(parts);
    for (std::size_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::uint64_t>(order.data()[i]);
      require(at < from.size(), "a row is out of range");
      out[i] = from.data()[at];
    }
  }
  Word* const raw = out.data();
  const nb::object owner = nb::cast(out.array());
  return nb::cast(nb::ndarray<nb::numpy, nb::ndim<1>>(raw, {n}, owner, {}, parts[0].dtype()));
}

nb::object gather(const std::vector<AnyColumn>& parts, In<std::int64_t> order) {
  require(!parts.empty(), "gather needs at least one array");
  require_aligned(order, "order");
  for (const AnyColumn& part : parts) {
    require(part.dtype() == parts[0].dtype(), "arrays to be joined are of one type");
    require(reinterpret_cast<std::uintptr_t>(part.data()) % part.itemsize() == 0,
            "an array is not aligned in memory: copy it first");
  }
  switch (parts[0].itemsize()) {
    case 1:
      return gather_words<std::uint8_t>(parts, order);
    case 2:
      return gather_words<std::uint16_t>(parts, order);
    case 4:
      return gather_words<std::uint32_t>(parts, order);
    case 8:
      return gather_words<std::uint64_t>(parts, order);
    default:
      throw nb::type_error("gather takes items of 1, 2, 4 or 8 bytes");
  }
}

Out<std::int64_t> places(In<std::int64_t> order, std::size_t rows) {
  require_aligned(order, "order");
  require(rows <= std::size_t{1} << 40, "there are more rows than memory can hold");
  Buffer<std::int64_t> place(rows);
  {
    nb::gil_scoped_release release;
    std::fill_n(place.data(), rows, kNoRow);
    for (std::size_t i = 0; i < order.shape(0); ++i) {
      require(static_cast<std::uint64_t>(order.data()[i]) < rows, "a row is out of range");
      place[static_cast<std::size_t>(order.data()[i])] = static_cast<std::int64_t>(i);
    }
  }
  return place.array();
}

}  // namespace

void bind_gather(nb::module_& m) {
  m.def("gather", &gather, nb::arg("parts").noconvert(), nb::arg("order").noconvert());
  m.def("places", &places, nb::arg("order").noconvert(), nb::arg("rows"));
}

}  // namespace profd
