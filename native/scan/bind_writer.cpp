// Python bindings of the Chrome writer: arrays are read where they lie.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "bind.h"
#include "chrome_writer.h"
#include "strings.h"

namespace nb = nanobind;

namespace profd::scan {
namespace {

template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Keeps what native code points into alive, and checks lengths once.
class Arrays {
 public:
  explicit Arrays(std::size_t rows) : rows_(rows) {}

  template <typename T>
  const T* get(const nb::dict& from, const char* name, bool required = false) {
    if (!from.contains(name)) {
      if (required) throw std::invalid_argument(std::string("column ") + name + " is missing");
      return nullptr;
    }
    return take<T>(from[name], rows_);
  }

  template <typename T>
  const T* take(nb::handle object, std::size_t rows) {
    auto array = nb::cast<Array<T>>(object);
    if (array.shape(0) != rows) throw std::invalid_argument("columns differ in length");
    const T* const data = array.data();
    kept_.push_back(nb::borrow(object));
    return data;
  }

 private:
  std::size_t rows_;
  std::vector<nb::object> kept_;
};

nb::bytes write_events(ChromeWriter& self, std::size_t rows, const nb::dict& from, const nb::list& args,
                       std::size_t first, std::size_t last) {
  Arrays arrays(rows);
  StoredColumns columns;
  columns.rows = rows;
  columns.name = arrays.get<std::int32_t>(from, "name", true);
  columns.cat = arrays.get<std::int32_t>(from, "cat", true);
  columns.thread = arrays.get<std::int32_t>(from, "thread", true);
  columns.kind = arrays.get<std::uint8_t>(from, "kind", true);
  columns.start = arrays.get<std::int64_t>(from, "start", true);
  columns.end = arrays.get<std::int64_t>(from, "end", true);
  columns.phase = arrays.get<std::uint8_t>(from, "phase", true);
  columns.weight = arrays.get<std::int64_t>(from, "weight");
  columns.value = arrays.get<double>(from, "value");
  for (std::size_t i = 0; i < kIntColumns; ++i) columns.ints[i] = arrays.get<std::int64_t>(from, kIntColumnNames[i].data());
  for (std::size_t i = 0; i < kCodeColumns; ++i) columns.codes[i] = arrays.get<std::int32_t>(from, kCodeColumnNames[i].data());
  std::vector<StoredArg> stored;
  for (nb::handle item : args) {
    auto [key, type, at, values] = nb::cast<std::tuple<std::string, std::string, nb::object, nb::object>>(item);
    StoredArg arg{key, Type::kJson, nullptr, nb::len(at), nullptr, nullptr, nullptr, nullptr};
    arg.rows = arrays.take<std::int64_t>(at, arg.size);
    if (type == "int") {
      arg.type = Type::kInt;
      arg.integers = arrays.take<std::int64_t>(values, arg.size);
    } else if (type == "float") {
      arg.type = Type::kFloat;
      arg.reals = arrays.take<double>(values, arg.size);
    } else {
      arg.type = type == "str" ? Type::kStr : Type::kJson;
      arg.codes = arrays.take<std::int32_t>(values, arg.size);
      arg.strings = &self.strings(type + ":" + key);
    }
    stored.push_back(std::move(arg));
  }
  std::string out;
  {
    nb::gil_scoped_release unlocked;
    out = self.write_events(columns, stored, first, last);
  }
  return nb::bytes(out.data(), out.size());
}

nb::bytes write_flows(ChromeWriter& self, std::size_t rows, const nb::dict& from) {
  Arrays arrays(rows);
  StoredFlows flows;
  flows.rows = rows;
  flows.id = arrays.get<std::int32_t>(from, "id", true);
  flows.category = arrays.get<std::int32_t>(from, "category", true);
  flows.name = arrays.get<std::int32_t>(from, "name", true);
  flows.thread = arrays.get<std::int32_t>(from, "thread", true);
  flows.phase = arrays.get<std::uint8_t>(from, "phase", true);
  flows.enclosing = arrays.get<std::uint8_t>(from, "enclosing", true);
  flows.time = arrays.get<std::int64_t>(from, "time", true);
  std::string out;
  {
    nb::gil_scoped_release unlocked;
    out = self.write_flows(flows);
  }
  return nb::bytes(out.data(), out.size());
}

void add_strings(ChromeWriter& self, const std::string& dictionary, const nb::list& values, bool json) {
  std::vector<std::string>& known = self.strings(dictionary);
  for (nb::handle value : values) {
    // Lone surrogates, which other decoders may let through, are no UTF-8.
    const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(value.ptr(), "utf-8", "replace"));
    if (!bytes.is_valid()) throw nb::python_error();
    const std::string_view text(PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr())));
    std::string token;
    if (json) {
      token = text;
    } else {
      append_quoted(token, text);
    }
    known.push_back(std::move(token));
  }
}

}  // namespace

void bind_writer(nb::module_& m) {
  nb::class_<ChromeWriter>(m, "ChromeWriter")
      .def(nb::init<std::int64_t>(), nb::arg("base_ns"))
      .def("set_tracks", &ChromeWriter::set_tracks, nb::arg("processes"), nb::arg("threads"), nb::arg("thread_process"))
      .def("add_strings", &add_strings, nb::arg("dictionary"), nb::arg("values"), nb::arg("json"))
      .def("write_events", &write_events, nb::arg("rows"), nb::arg("columns"), nb::arg("args"), nb::arg("first"),
           nb::arg("last"))
      .def("write_flows", &write_flows, nb::arg("rows"), nb::arg("columns"));
}

}  // namespace profd::scan
