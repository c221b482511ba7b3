// Python bindings of the chunk reader: vectors become numpy arrays without a copy.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <utility>

#include "arrays.h"
#include "bind.h"
#include "chunk_reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace profd::scan {
namespace {

template <typename T>
void put(nb::dict& out, const char* name, OptionalColumn<T>& column) {
  if (!column.values.empty()) out[name] = array(std::move(column.values));
}

template <typename T>
nb::tuple sparse(SparseColumn<T>& column) {
  return nb::make_tuple(array(std::move(column.rows)), array(std::move(column.values)));
}

nb::dict dense(ChunkColumns& columns) {
  columns.pad();
  nb::dict out;
  out["name"] = array(std::move(columns.name));
  out["kind"] = array(std::move(columns.kind));
  out["cat"] = array(std::move(columns.cat));
  out["phase"] = array(std::move(columns.phase));
  out["start"] = array(std::move(columns.start));
  out["end"] = array(std::move(columns.end));
  out["process"] = array(std::move(columns.process));
  out["thread"] = array(std::move(columns.thread));
  out["device_type"] = array(std::move(columns.device_type));
  put(out, "external", columns.external);
  put(out, "sequence", columns.sequence);
  put(out, "fwd_thread", columns.fwd_thread);
  put(out, "debug_handle", columns.debug_handle);
  put(out, "correlation", columns.correlation);
  put(out, "device", columns.device);
  put(out, "context", columns.context);
  put(out, "stream", columns.stream);
  put(out, "bytes", columns.bytes);
  put(out, "ptr", columns.ptr);
  put(out, "total_allocated", columns.total_allocated);
  put(out, "total_reserved", columns.total_reserved);
  put(out, "end_thread", columns.end_thread);
  put(out, "module", columns.module);
  put(out, "stack", columns.stack);
  put(out, "inputs", columns.inputs);
  put(out, "scope", columns.scope);
  put(out, "is_async", columns.is_async);
  put(out, "value", columns.value);
  put(out, "flops", columns.flops);
  return out;
}

nb::list texts(Interner& interner) {
  nb::list out;
  for (const auto& s : interner.take_new()) out.append(text(s));
  return out;
}

nb::list blobs(Interner& interner) {
  nb::list out;
  for (const auto& s : interner.take_new()) out.append(nb::bytes(s.data(), s.size()));
  return out;
}

nb::dict take_chunks(ChunkReader& reader) {
  ChunkColumns taken = std::exchange(reader.columns, {});
  nb::dict out;
  out["columns"] = dense(taken);
  out["args"] = sparse(taken.args);
  out["impl_ptrs"] = sparse(taken.impls);
  out["storage_ptrs"] = sparse(taken.storages);
  out["failed"] = array(std::move(taken.failed.rows));
  out["open_at_start"] = array(std::move(taken.open_at_start.rows));
  out["allow_tf32"] = array(std::move(taken.allow_tf32.rows));
  nb::dict strings;
  strings["name"] = texts(reader.names);
  strings["module"] = texts(reader.modules);
  strings["stack"] = texts(reader.stacks);
  out["strings"] = strings;
  out["inputs"] = blobs(reader.inputs);
  out["arguments"] = blobs(reader.args);
  nb::list processes, threads, names;
  for (const auto& [gpu, id] : reader.take_processes()) processes.append(nb::make_tuple(gpu, id));
  for (const auto& [process, tid] : reader.take_threads()) threads.append(nb::make_tuple(process, tid));
  for (const auto& [thread, name] : reader.take_thread_names()) names.append(nb::make_tuple(thread, text(name)));
  out["processes"] = processes;
  out["threads"] = threads;
  out["thread_names"] = names;
  return out;
}

template <auto read>
auto call(ChunkReader& reader, std::uint32_t space, std::uint32_t pid, std::uint32_t stream, std::uint64_t sequence,
          std::uint64_t tid, std::uint32_t thread_name, std::uint64_t id_base, std::int64_t start, std::uint32_t slots,
          std::uint32_t events, const nb::bytes& body) {
  const ChunkPlace place{space, pid, stream, sequence, tid, thread_name, id_base, start, slots, events};
  const std::string_view view(body.c_str(), body.size());
  nb::gil_scoped_release unlocked;
  return (reader.*read)(place, view);
}

}  // namespace

void bind_chunk(nb::module_& m) {
  nb::class_<ChunkReader>(m, "ChunkReader")
      .def(
          "__init__",
          [](ChunkReader* self, std::size_t dictionary_bytes, std::size_t open_events, std::size_t tracks) {
            new (self) ChunkReader(ChunkLimits{dictionary_bytes, open_events, tracks});
          },
          nb::kw_only(), "dictionary_bytes"_a, "open_events"_a, "tracks"_a)
      .def("index", &call<&ChunkReader::index>)
      .def("add", &call<&ChunkReader::add>)
      .def("take", &take_chunks)
      .def_prop_ro("rows", [](const ChunkReader& reader) { return reader.columns.size(); })
      .def_prop_ro("tensors", [](const ChunkReader& reader) { return reader.columns.impls.rows.size(); })
      .def_prop_ro("unmatched_ends", &ChunkReader::unmatched_ends)
      .def_prop_ro("lost", [](const ChunkReader& reader) { return counts(reader.lost); })
      .def_prop_ro("counted", [](const ChunkReader& reader) { return counts(reader.counted); });
}

}  // namespace profd::scan
