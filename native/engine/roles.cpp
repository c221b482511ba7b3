// What each row does in the tree, in links and in flows, from what it is and where it ran.
#include "roles.h"

#include <optional>

#include <nanobind/stl/optional.h>

#include "arrays.h"

namespace profd {
namespace {

// (role of each row, all of them or-ed). `tables`: 256 roles by kind on the host, then 256 on a device. Host is what
// has a device type up to `host_max`. Rows that overlap freely keep the bits of `overlapping` only.
nb::tuple roles(In<std::uint8_t> kind, In<std::uint8_t> device_type, std::optional<In<std::uint8_t>> phase,
                std::optional<In<std::uint8_t>> is_async, In<std::uint8_t> tables, In<std::uint8_t> overlapping_phases,
                std::uint8_t host_max, std::uint8_t overlapping) {
  const std::size_t n = kind.shape(0);
  require_column(device_type, n, "device_type");
  if (phase) require_column(*phase, n, "phase");
  if (is_async) require_column(*is_async, n, "is_async");
  require_column(tables, 512, "tables");
  require_column(overlapping_phases, 256, "overlapping_phases");
  Buffer<std::uint8_t> role(n);
  std::uint8_t seen = 0;
  {
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) {
      role[i] = tables.data()[kind.data()[i] + (device_type.data()[i] > host_max ? 256 : 0)];
    }
    if (phase) {
      for (std::size_t i = 0; i < n; ++i) {
        role[i] &= overlapping_phases.data()[phase->data()[i]] ? overlapping : 0xFF;
      }
    }
    if (is_async) {
      for (std::size_t i = 0; i < n; ++i) role[i] &= is_async->data()[i] ? overlapping : 0xFF;
    }
    for (std::size_t i = 0; i < n; ++i) seen |= role[i];
  }
  return nb::make_tuple(role.array(), seen);
}

}  // namespace

void bind_roles(nb::module_& m) {
  m.def("roles", &roles, nb::arg("kind").noconvert(), nb::arg("device_type").noconvert(),
        nb::arg("phase").noconvert().none(), nb::arg("is_async").noconvert().none(), nb::kw_only(),
        nb::arg("tables").noconvert(), nb::arg("overlapping_phases").noconvert(), nb::arg("host_max"),
        nb::arg("overlapping"));
}

}  // namespace profd
