// Python bindings of the wire format: messages in, columns out.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "wire.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace profd::scan {
namespace {

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void check(const Bytes& data, std::size_t first, std::size_t last) {
  if (first > last || last > data.shape(0)) throw std::out_of_range("the range is not within the data");
}

nb::tuple fields(Bytes data, std::size_t first, std::size_t last, std::uint64_t wanted, std::size_t limit) {
  check(data, first, last);
  FieldColumns out;
  {
    nb::gil_scoped_release release;
    out = scan_fields(data.data(), first, last, wanted, limit);
  }
  return nb::make_tuple(array(std::move(out.number)), array(std::move(out.type)), array(std::move(out.value)),
                        array(std::move(out.length)), out.fault, out.full);
}

nb::dict events(Bytes data, std::size_t first, std::size_t last, std::size_t events, std::size_t stats,
                std::size_t event_stats) {
  check(data, first, last);
  EventColumns out;
  {
    nb::gil_scoped_release release;
    out = scan_events(data.data(), first, last, events, stats, event_stats);
  }
  nb::list texts;
  for (std::string_view text : out.texts) texts.append(nb::bytes(text.data(), text.size()));
  nb::dict result;
  result["metadata_id"] = array(std::move(out.metadata_id));
  result["value"] = array(std::move(out.value));
  result["which"] = array(std::move(out.which));
  result["duration"] = array(std::move(out.duration));
  result["stat_row"] = array(std::move(out.stat_row));
  result["stat_id"] = array(std::move(out.stat_id));
  result["stat_type"] = array(std::move(out.stat_type));
  result["stat_value"] = array(std::move(out.stat_value));
  result["texts"] = texts;
  result["next"] = out.next;
  result["fault"] = out.fault;
  result["malformed"] = out.malformed;
  result["stats_beyond"] = out.stats_beyond;
  return result;
}

}  // namespace

void bind_wire(nb::module_& m) {
  m.def("wire_fields", &fields, "data"_a, "first"_a, "last"_a, "wanted"_a, "limit"_a);
  m.def("xspace_events", &events, "data"_a, "first"_a, "last"_a, nb::kw_only(), "events"_a, "stats"_a, "event_stats"_a);
}

}  // namespace profd::scan
