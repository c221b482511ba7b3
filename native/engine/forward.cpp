// Which forward op each backward op belongs to, by thread and sequence number.
#include "forward.h"

#include <vector>

#include "arrays.h"
#include "id_table.h"

namespace profd {
namespace {

constexpr std::int32_t kNone = -1;

struct Ops {
  std::int32_t first = kNone;
  std::int32_t last = kNone;
};

nb::tuple match_forward(In<std::int64_t> start, In<std::int64_t> sequence, In<std::int64_t> forward,
                        In<std::int32_t> forward_thread, In<std::int64_t> backward,
                        In<std::int32_t> backward_thread) {
  const std::size_t n = start.shape(0), ops = forward.shape(0), asked = backward.shape(0);
  require_aligned(start, "start");
  require_column(sequence, n, "sequence");
  require_aligned(forward, "forward");
  require_column(forward_thread, ops, "forward_thread");
  require_aligned(backward, "backward");
  require_column(backward_thread, asked, "backward_thread");
  require(n < std::size_t{1} << 31, "there are too many rows");
  Buffer<std::int64_t> last(asked), first(asked);
  {
    nb::gil_scoped_release release;
    const auto check = [n](const In<std::int64_t>& rows) {
      for (std::size_t i = 0; i < rows.shape(0); ++i) {
        require(rows.data()[i] >= 0 && rows.data()[i] < static_cast<std::int64_t>(n), "a row is out of range");
        require(!i || rows.data()[i - 1] < rows.data()[i], "rows do not ascend");
      }
    };
    check(forward);
    check(backward);
    IdTable<Ops> known;
    std::size_t next = 0;
    const auto take = [&] {
      const std::int64_t row = forward.data()[next];
      Ops& of = known.at({sequence.data()[row], forward_thread.data()[next]});
      of.last = static_cast<std::int32_t>(row);
      if (of.first == kNone) of.first = of.last;
      ++next;
    };
    for (std::size_t i = 0; i < asked; ++i) {
      const std::int64_t row = backward.data()[i];
      // Ops that start together with it count, in whatever order their rows are.
      while (next < ops && (forward.data()[next] < row || start.data()[forward.data()[next]] <= start.data()[row])) take();
      const Ops* of = known.find({sequence.data()[row], backward_thread.data()[i]});
      last[i] = of ? of->last : kNoRow;
      first[i] = of ? of->first : kNoRow;
    }
    while (next < ops) take();
    for (std::size_t i = 0; i < asked; ++i) {
      if (first[i] != kNoRow) continue;
      const Ops* of = known.find({sequence.data()[backward.data()[i]], backward_thread.data()[i]});
      first[i] = of ? of->first : kNoRow;
    }
  }
  return nb::make_tuple(last.array(), first.array());
}

}  // namespace

void bind_forward(nb::module_& m) {
  m.def("match_forward", &match_forward, nb::arg("start").noconvert(), nb::arg("sequence").noconvert(),
        nb::arg("forward").noconvert(), nb::arg("forward_thread").noconvert(), nb::arg("backward").noconvert(),
        nb::arg("backward_thread").noconvert());
}

}  // namespace profd
