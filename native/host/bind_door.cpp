// Python bindings of the door, and of its reader of frames for the tests.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "bind.h"
#include "bind_limits.h"
#include "door.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace profd::host {
namespace {

std::string text(nb::handle bytes) {
  const nb::bytes held = nb::cast<nb::bytes>(bytes);
  return {held.c_str(), held.size()};
}

void open_door(Door* self, const std::string& server, nb::object limits, nb::bytes user_refusal, nb::bytes host_refusal) {
  const auto count = [&limits](const char* name) { return nb::cast<int>(limits.attr(name)); };
  const auto number = [&limits](const char* name) { return nb::cast<double>(limits.attr(name)); };
  const DoorLimits native{count("each"),
                          count("host"),
                          count("answered_each"),
                          count("answered_host"),
                          count("header_block_bytes"),
                          count("header_fields"),
                          number("begin_seconds"),
                          number("end_seconds"),
                          rates(limits.attr("user")),
                          rates(limits.attr("all")),
                           nb::cast<gid_t>(limits.attr("admins")),
                           nb::cast<uid_t>(limits.attr("streamers"))};
  try {
    new (self) Door(server, native, {text(user_refusal), text(host_refusal)});
  } catch (const std::system_error& error) {
    raise_os_error(error.code().value());
  }
}

void listen(Door& self, int fd) { self.listen(own(fd)); }

nb::tuple who(const Door& self, int fd) {
  try {
    const Peer peer = self.who(fd);
    return nb::make_tuple(peer.uid, peer.free);
  } catch (const std::system_error& error) {
    raise_os_error(error.code().value());
  }
}

void take_connection(Door& self, int fd, uid_t uid, bool free) {
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) < 0) raise_os_error(errno);
  self.take(fd, {0, uid, 0, free});
}

nb::dict door_counts(const Door& self) {
  const DoorCounts& counts = self.counts();
  nb::dict result;
  result["open"] = counts.open.load();
  result["refused"] = counts.refused.load();
  result["refused_uid"] = counts.refused_uid.load();
  result["throttled"] = counts.throttled.load();
  result["foreign"] = counts.foreign.load();
  return result;
}

// What a connection does with its frames, in pieces.
class FrameReader {
 public:
  nb::list feed(nb::bytes piece) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(piece.c_str());
    held_.insert(held_.end(), data, data + piece.size());
    nb::list found;
    std::size_t passed = 0;
    for (Frames::Next next; (next = frames_.look(held_.data() + passed, held_.size() - passed)) != Frames::Next::MORE;) {
      if (next == Frames::Next::FOREIGN) throw nb::value_error("this is no HTTP/2");
      if (next == Frames::Next::BYTES) {
        frames_.pass(held_.data() + passed, frames_.size);
        if (frames_.begun()) most_fields_ = std::max(most_fields_, frames_.block_fields());
        passed += frames_.size;
        continue;
      }
      const Frame& frame = frames_.frame;
      found.append(nb::make_tuple(frame.length, frame.type, frame.flags, frame.stream));
      frames_.pass_header();
      passed += Frames::HEADER_BYTES;
    }
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(passed));
    return found;
  }
  std::size_t most_fields() const { return most_fields_; }

 private:
  Frames frames_;
  std::vector<std::uint8_t> held_;
  std::size_t most_fields_ = 0;
};

}  // namespace

void bind_door(nb::module_& m) {
  nb::class_<Door>(m, "Door")
      .def("__init__", &open_door, "server"_a, "limits"_a, "user_refusal"_a, "host_refusal"_a)
      .def("listen", &listen, "listener"_a)
      .def("refuse", &Door::refuse)
      .def("who", &who, "connection"_a)
      .def("set_admins", &Door::set_admins, "gid"_a)
      .def("keep_members", &Door::keep_members, "gid"_a)
      .def("take", &take_connection, "connection"_a, "uid"_a, "free"_a)
      .def("close", &Door::close, "seconds"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("counts", &door_counts);
  nb::class_<FrameReader>(m, "FrameReader")
      .def(nb::init<>())
      .def("feed", &FrameReader::feed, "piece"_a)
      .def_prop_ro("most_fields", &FrameReader::most_fields);
}

}  // namespace profd::host
