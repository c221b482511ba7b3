// What a category says about its events.
#pragma once

#include <string_view>

#include "columns.h"

namespace profd::scan {

struct Category {
  Kind kind = Kind::kOther;
  DeviceType device = DeviceType::kCpu;      // kOther: whatever the accelerator of the trace is
  DeviceType implies = DeviceType::kOther;   // what the accelerator is, where the category gives it away
  bool known = false;
};

Category categorize(std::string_view cat);

}  // namespace profd::scan
