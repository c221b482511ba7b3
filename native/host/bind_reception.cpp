// Python bindings of receptions, and of what is said to porters.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <vector>

#include "bind.h"
#include "porter_words.h"
#include "reception.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace profd::host {
namespace {

void raise_if(int error) {
  if (error == 0) return;
  errno = error;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

char only(const std::string& word) {
  if (word.size() != 1) throw nb::value_error("a word is one letter");
  return word[0];
}

void hand(PorterWords& self, const std::string& word, const nb::args& fds) {
  std::array<int, 2> sent;
  if (fds.size() > sent.size()) throw nb::value_error("more than two descriptors");
  for (std::size_t at = 0; at < fds.size(); ++at) sent[at] = nb::cast<int>(fds[at]);
  raise_if(self.hand(only(word), sent.data(), fds.size()));
}

void open_reception(Reception* self, double per_second, double burst, int waiting, int users, gid_t admins, uid_t streamers,
          const nb::bytes& refusal, std::shared_ptr<Droppers> droppers) {
  try {
    new (self) Reception(admins, {per_second, burst, waiting, users, streamers},
                         {refusal.c_str(), refusal.size()}, std::move(droppers));
  } catch (const std::system_error& error) {
    raise_if(error.code().value());
  }
}

nb::list take_arrivals(Reception& self, std::size_t most) {
  nb::list taken;
  for (const Arrival& arrival : self.take(most)) {
    taken.append(nb::make_tuple(arrival.fd, arrival.peer.pid, arrival.peer.uid, arrival.peer.gid));
  }
  return taken;
}

nb::list take_undropped(Reception& self) {
  nb::list fds;
  for (const int fd : self.take_undropped()) fds.append(fd);
  return fds;
}

nb::tuple reception_counts(Reception& self) {
  const ReceptionCounts counts = self.counts();
  return nb::make_tuple(counts.refused, counts.refused_uid);
}

nb::list close(Reception& self) {
  std::vector<int> left;
  {
    const nb::gil_scoped_release release;
    left = self.close();
  }
  nb::list fds;
  for (const int fd : left) fds.append(fd);
  return fds;
}

}  // namespace

void bind_reception(nb::module_& m) {
  nb::class_<PorterWords>(m, "PorterWords")
      .def(nb::init<int>(), "control"_a)
      .def("hand", &hand, "word"_a, "fds"_a)
      .def("say", [](PorterWords& self, const std::string& word) { raise_if(self.say(only(word))); }, "word"_a)
      .def("end", &PorterWords::end);
  nb::class_<Droppers>(m, "Droppers").def(nb::init<>()).def("use", &Droppers::use, "uid"_a, "words"_a.none());
  nb::class_<Reception>(m, "Reception")
      .def("__init__", &open_reception, nb::kw_only(), "per_second"_a, "burst"_a, "waiting"_a, "users"_a, "admins"_a,
           "streamers"_a, "refusal"_a, "droppers"_a.none())
      .def("set_admins", &Reception::set_admins, "gid"_a)
      .def("listen", &Reception::listen, "listener"_a)
      .def("signal", &Reception::signal)
      .def("take", &take_arrivals, "most"_a)
      .def("take_undropped", &take_undropped)
      .def("counts", &reception_counts)
      .def("close", &close);
}

}  // namespace profd::host
