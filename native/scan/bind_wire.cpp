// Python bindings of the wire format: messages in, columns out.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "wire.h"
#include "xspace_events.h"

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

nb::tuple stat(StatColumn&& column) {
  if (column.is_number()) {
    return nb::make_tuple(column.id, column.type, array(std::move(column.rows)), array(std::move(column.numbers)),
                          nb::none(), column.repeats);
  }
  return nb::make_tuple(column.id, column.type, array(std::move(column.rows)), array(std::move(column.words)),
                        std::move(column.distinct.values), column.repeats);
}

nb::dict events(Bytes data, std::size_t first, std::size_t last, std::int64_t base_ns, std::size_t events,
                std::size_t stats, std::size_t event_stats, std::size_t stat_columns) {
  check(data, first, last);
  EventColumns out;
  {
    nb::gil_scoped_release release;
    out = scan_events(data.data(), first, last, base_ns, {events, stats, event_stats, stat_columns});
  }
  nb::list texts, columns;
  for (std::string_view text : out.texts) texts.append(nb::bytes(text.data(), text.size()));
  for (StatColumn& column : out.stats) {
    if (!column.rows.empty()) columns.append(stat(std::move(column)));
  }
  nb::dict result;
  result["start"] = array(std::move(out.start));
  result["end"] = array(std::move(out.end));
  result["start_ps"] = out.has_ps ? array(std::move(out.start_ps)) : nb::none();
  result["end_ps"] = out.has_ps ? array(std::move(out.end_ps)) : nb::none();
  result["metadata"] = array(std::move(out.metadata));
  result["metadata_ids"] = std::move(out.metadata_ids.values);
  result["aggregates"] = array(std::move(out.aggregates));
  result["occurrences"] = array(std::move(out.occurrences));
  result["stats"] = columns;
  result["texts"] = texts;
  result["next"] = out.next;
  nb::dict lost;
  lost["malformed"] = out.malformed;
  lost["bad_time"] = out.bad_time;
  lost["too_many_stats"] = out.stats_beyond;
  lost["too_many_stat_names"] = out.columns_beyond;
  lost["stat_without_value"] = out.without_value;
  result["lost"] = lost;
  result["end_before_start"] = out.end_before_start;
  result["fault"] = out.fault;
  return result;
}

}  // namespace

void bind_wire(nb::module_& m) {
  m.def("wire_fields", &fields, "data"_a, "first"_a, "last"_a, "wanted"_a, "limit"_a);
  m.def("xspace_events", &events, "data"_a, "first"_a, "last"_a, "base_ns"_a, nb::kw_only(), "events"_a, "stats"_a,
        "event_stats"_a, "stat_columns"_a);
}

}  // namespace profd::scan
