// What module.cpp binds; one function a part.
#pragma once

#include <nanobind/nanobind.h>

namespace profd::host {

void bind_datagrams(nanobind::module_& m);
void bind_sender_filter(nanobind::module_& m);
void bind_guarded(nanobind::module_& m);
void bind_mapped_names(nanobind::module_& m);
void bind_json_members(nanobind::module_& m);
void bind_door(nanobind::module_& m);
void bind_line(nanobind::module_& m);
void bind_reception(nanobind::module_& m);

}  // namespace profd::host
