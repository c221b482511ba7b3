// What a row does in tree, links and flows. Python composes them (daemon/profd/tree/roles.py).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace profd {

enum Role : std::uint8_t {
  kNests = 1,        // has a parent by time on its thread
  kFrame = 2,        // may be a parent itself, if it has a length
  kTimed = 4,        // has a self time
  kOp = 8,           // what fwdbwd flows bind to
  kLaunch = 16,      // a runtime or driver call: what device rows link to
  kDevice = 32,      // ran on a device: looks for its launch by correlation id
  kMustLaunch = 64,  // a call that launches by its name: counted when nothing came of it
  kMustLink = 128,   // a device row that some call launched: counted when none is known
};

void bind_roles(nanobind::module_& m);

}  // namespace profd
