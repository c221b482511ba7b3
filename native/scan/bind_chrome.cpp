// Python bindings of the Chrome scanner: vectors become numpy arrays without a copy.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "arrays.h"
#include "bind.h"
#include "chrome_scanner.h"

namespace nb = nanobind;

namespace profd::scan {
namespace {

// The vector, leaving an empty one with room for as much again.
template <typename T>
std::vector<T> renew(std::vector<T>& values) {
  std::vector<T> fresh;
  fresh.reserve(values.size() + values.size() / 8);
  return std::exchange(values, std::move(fresh));
}

template <typename Strings>
nb::list texts(const Strings& strings) {
  nb::list out;
  for (const auto& s : strings) out.append(text(s));
  return out;
}

nb::dict take_columns(Columns& columns) {
  columns.pad();
  Columns taken = std::exchange(columns, {});
  columns.reserve_like(taken);
  nb::dict out;
  out["name"] = array(std::move(taken.name));
  out["kind"] = array(std::move(taken.kind));
  out["cat"] = array(std::move(taken.cat));
  out["phase"] = array(std::move(taken.phase));
  out["start"] = array(std::move(taken.start));
  out["end"] = array(std::move(taken.end));
  out["process"] = array(std::move(taken.process));
  out["thread"] = array(std::move(taken.thread));
  out["device_type"] = array(std::move(taken.device_type));
  for (std::size_t i = 0; i < kIntColumns; ++i) {
    if (!taken.ints[i].empty()) out[kIntColumnNames[i].data()] = array(std::move(taken.ints[i]));
  }
  for (std::size_t i = 0; i < kCodeColumns; ++i) {
    if (!taken.codes[i].empty()) out[kCodeColumnNames[i].data()] = array(std::move(taken.codes[i]));
  }
  if (!taken.value.empty()) out["value"] = array(std::move(taken.value));
  return out;
}

nb::dict take_flows(FlowColumns& flows) {
  FlowColumns taken = std::exchange(flows, {});
  nb::dict out;
  out["id"] = array(std::move(taken.id));
  out["category"] = array(std::move(taken.category));
  out["name"] = array(std::move(taken.name));
  out["phase"] = array(std::move(taken.phase));
  out["enclosing"] = array(std::move(taken.enclosing));
  out["thread"] = array(std::move(taken.thread));
  out["time"] = array(std::move(taken.time));
  return out;
}

// (column number, key, type, rows, values), (column number, new strings)
std::pair<nb::list, nb::list> take_args(ChromeArgs& args) {
  nb::list values, strings;
  std::size_t number = 0;
  for (ArgColumn& column : args.columns()) {
    const std::size_t at = number++;
    if (column.strings) {
      if (const auto fresh = column.strings->take_new(); !fresh.empty()) strings.append(nb::make_tuple(at, texts(fresh)));
    }
    if (column.rows.empty()) continue;
    nb::object data = column.type == Type::kInt     ? array(renew(column.integers))
                      : column.type == Type::kFloat ? array(renew(column.reals))
                                                    : array(renew(column.codes));
    values.append(nb::make_tuple(at, text(column.key), text(kTypeNames[static_cast<std::size_t>(column.type)]),
                                 array(renew(column.rows)), data));
  }
  return {values, strings};
}

nb::dict take_events(ChromeScanner& scanner) {
  ChromeEvents& events = scanner.events();
  nb::dict out;
  out["columns"] = take_columns(events.columns);
  out["flows"] = take_flows(events.flows);
  auto [args, arg_strings] = take_args(events.args());
  out["args"] = args;
  out["arg_strings"] = arg_strings;
  nb::dict strings;
  strings["name"] = texts(events.names().take_new());
  strings["cat"] = texts(events.cats().take_new());
  strings["flow_id"] = texts(events.flow_ids().take_new());
  for (std::size_t i = 0; i < kCodeColumns; ++i) {
    strings[kCodeColumnNames[i].data()] = texts(events.args().dictionary(static_cast<CodeColumn>(i)).take_new());
  }
  out["strings"] = strings;
  out["processes"] = texts(events.tracks().take_processes());
  nb::list threads;
  for (const auto& thread : events.tracks().take_threads()) threads.append(nb::make_tuple(thread.process, text(thread.id)));
  out["threads"] = threads;
  out["metadata"] = texts(std::exchange(events.metadata, {}));
  nb::list members;
  for (const auto& [key, value] : scanner.take_members()) members.append(nb::make_tuple(text(key), text(value)));
  out["members"] = members;
  return out;
}

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

}  // namespace

void bind_chrome(nb::module_& m) {
  nb::class_<ChromeScanner>(m, "ChromeScanner")
      .def(
          "__init__",
          [](ChromeScanner* self, std::size_t event_bytes, int depth, std::size_t string_bytes, std::size_t arg_keys,
             std::size_t dictionary_bytes, std::size_t tracks, std::size_t open_rows, bool skip_events) {
            new (self) ChromeScanner(
                Limits{event_bytes, depth, string_bytes, arg_keys, dictionary_bytes, tracks, open_rows}, skip_events);
          },
          nb::kw_only(), nb::arg("event_bytes"), nb::arg("depth"), nb::arg("string_bytes"), nb::arg("arg_keys"),
          nb::arg("dictionary_bytes"), nb::arg("tracks"), nb::arg("open_rows"), nb::arg("skip_events") = false)
      .def(
          "feed",
          [](ChromeScanner& self, const Bytes& slice, bool final) {
            const std::string_view view(reinterpret_cast<const char*>(slice.data()), slice.size());
            nb::gil_scoped_release unlocked;
            self.feed(view, final);
          },
          nb::arg("slice"), nb::arg("final"))
      .def(
          "begin",
          [](ChromeScanner& self, std::int64_t base_ns, int accelerator) {
            nb::gil_scoped_release unlocked;
            self.begin(base_ns, static_cast<DeviceType>(accelerator));
          },
          nb::arg("base_ns"), nb::arg("accelerator"))
      .def("take", &take_events)
      .def_prop_ro("held", &ChromeScanner::held)
      .def_prop_ro("done", &ChromeScanner::done)
      .def_prop_ro("fault", &ChromeScanner::fault)
      .def_prop_ro("truncated", &ChromeScanner::truncated)
      .def_prop_ro("offset", &ChromeScanner::offset)
      .def_prop_ro("rows", [](ChromeScanner& self) { return self.events().columns.size(); })
      .def_prop_ro("lost", [](ChromeScanner& self) { return counts(self.events().lost); })
      .def_prop_ro("counted", [](ChromeScanner& self) { return counts(self.events().counted); });
}

}  // namespace profd::scan
