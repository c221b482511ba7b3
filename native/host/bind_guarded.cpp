// profd._host.ask: guarded.h for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <tuple>

#include "bind.h"
#include "guarded.h"

namespace nb = nanobind;

namespace profd::host {
namespace {

// (kind, path, limit) each; ValueError where one is none of guarded.h.
std::size_t fill(Slot* slot, nb::list requests) {
  std::size_t room = 0;
  for (nb::handle one : requests) {
    const auto [kind, path, limit] = nb::cast<std::tuple<int, std::string, std::uint32_t>>(one);
    if (kind < 0 || kind > static_cast<int>(Kind::Clock) || path.size() >= kPathMax) {
      throw nb::value_error("no such request");
    }
    if (slot != nullptr) {
      Request& request = slot->requests[slot->count++];
      request.kind = static_cast<Kind>(kind);
      std::memcpy(request.path, path.c_str(), path.size() + 1);
      request.limit = limit;
      request.offset = room;
    }
    if (static_cast<Kind>(kind) != Kind::Open) room += limit;
  }
  return room;
}

nb::object answer(const Slot* slot, const Request& request) {
  const std::int64_t said = request.answer;
  if (said < 0 || request.kind == Kind::Open) return nb::int_(said);
  return nb::bytes(slot->buffer + request.offset, static_cast<std::size_t>(said));
}

nb::tuple ask_python(nb::list requests, double seconds) {
  if (nb::len(requests) > kRequestsMax) throw nb::value_error("too many requests at once");
  Slot* slot = take_slot(fill(nullptr, requests));
  if (slot == nullptr) return nb::make_tuple(static_cast<int>(Outcome::NoChild), nb::list());
  fill(slot, requests);
  Outcome outcome{};
  bool reusable = true;
  {
    nb::gil_scoped_release released;
    outcome = ask(slot, seconds, reusable);
  }
  nb::list answers;
  if (!reusable) return nb::make_tuple(static_cast<int>(outcome), answers);  // its child may still write there
  for (int at = 0; at < slot->count; ++at) answers.append(answer(slot, slot->requests[at]));
  give_slot(slot);
  return nb::make_tuple(static_cast<int>(outcome), answers);
}

}  // namespace

void bind_guarded(nb::module_& m) { m.def("ask", &ask_python, nb::arg("requests"), nb::arg("seconds")); }

}  // namespace profd::host
