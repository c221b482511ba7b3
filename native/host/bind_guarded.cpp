// profd._host.ask: guarded.h for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "bind.h"
#include "guarded.h"

namespace nb = nanobind;

namespace profd::host {
namespace {

bool has_no_bytes(Kind kind) { return kind == Kind::Open || kind == Kind::InUse; }

// (kind, path, limit) each; ValueError where one is none of guarded.h.
std::size_t fill(Slot* slot, nb::list requests, const std::vector<std::uint32_t>& owners) {
  std::size_t room = 0;
  for (std::size_t at = 0; at < nb::len(requests); ++at) {
    const auto [kind, path, limit] = nb::cast<std::tuple<int, std::string, std::uint32_t>>(requests[at]);
    if (kind < 0 || kind > static_cast<int>(Kind::InUse) || path.size() >= kPathMax) {
      throw nb::value_error("no such request");
    }
    if (slot != nullptr) {
      Request& request = slot->requests[slot->count++];
      request.kind = static_cast<Kind>(kind);
      std::memcpy(request.path, path.c_str(), path.size() + 1);
      request.owner = at < owners.size() ? owners[at] : 0;
      request.limit = limit;
      request.offset = room;
    }
    if (!has_no_bytes(static_cast<Kind>(kind))) room += limit;
  }
  return room;
}

nb::object answer(const Slot* slot, const Request& request) {
  const std::int64_t said = request.answer;
  if (said < 0 || has_no_bytes(request.kind)) return nb::int_(said);
  return nb::bytes(slot->buffer + request.offset, static_cast<std::size_t>(said));
}

// The processes of one user, mostly, come one behind the other.
bool any_used_up(const std::vector<std::uint32_t>& owners) {
  for (std::size_t at = 0; at < owners.size(); ++at) {
    if ((at == 0 || owners[at] != owners[at - 1]) && used_up(owners[at])) return true;
  }
  return false;
}

// An outcome that has nothing further to say.
nb::tuple without_answers(Outcome outcome) {
  return nb::make_tuple(static_cast<int>(outcome), nb::list(), 0.0, 0);
}

nb::tuple ask_python(nb::list requests, double seconds, const std::vector<std::uint32_t>& owners) {
  if (nb::len(requests) > kRequestsMax) throw nb::value_error("too many requests at once");
  if (any_used_up(owners)) return without_answers(Outcome::Refused);
  Slot* slot = take_slot(fill(nullptr, requests, owners));
  if (slot == nullptr) return without_answers(Outcome::NoChild);
  fill(slot, requests, owners);
  Outcome outcome{};
  bool reusable = true;
  {
    nb::gil_scoped_release released;
    outcome = ask(slot, seconds, reusable);
  }
  const double waited = static_cast<double>(slot->waited_ns) / 1e9;
  const int longest = slot->longest;
  nb::list answers;
  if (!reusable) return nb::make_tuple(static_cast<int>(outcome), answers, waited, longest);  // it may still write there
  for (int at = 0; at < slot->count; ++at) answers.append(answer(slot, slot->requests[at]));
  give_slot(slot);
  return nb::make_tuple(static_cast<int>(outcome), answers, waited, longest);
}

}  // namespace

void bind_guarded(nb::module_& m) {
  m.def("ask", &ask_python, nb::arg("requests"), nb::arg("seconds"), nb::arg("owners") = std::vector<std::uint32_t>());
}

}  // namespace profd::host
