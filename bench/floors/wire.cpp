// The floor of the wire: slots (32 bytes: start, end, name, …) copied; copied and written as rows of varints (start
// less the one before, length, name); and those varints read into columns. No nesting, labels, clock or checks.
//
//   ./wire slots_file   ->   CPU seconds of: copy, copy + varints, reading the varints
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <vector>

struct Slot {
  std::uint64_t start, end;
  std::uint32_t name, rest;
  std::uint64_t payload;
};

constexpr std::size_t kChunk = 2044;
static Slot copy[kChunk];

static double seconds() {
  timespec at{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return static_cast<double>(at.tv_sec) + static_cast<double>(at.tv_nsec) * 1e-9;
}

static std::uint8_t* put(std::uint8_t* out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<std::uint8_t>(value | 0x80);
  *out++ = static_cast<std::uint8_t>(value);
  return out;
}

static const std::uint8_t* get(const std::uint8_t* in, std::uint64_t& value) {
  value = 0;
  for (int shift = 0;; shift += 7) {
    value |= static_cast<std::uint64_t>(*in & 0x7F) << shift;
    if (*in++ < 0x80) return in;
  }
}

template <typename Work>
static double best(Work work) {
  double found = 1e9;
  for (int round = 0; round < 7; ++round) {
    const double begin = seconds();
    work();
    found = std::min(found, seconds() - begin);
  }
  return found;
}

int main(int, char** arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  const std::size_t count = bytes.size() / sizeof(Slot);
  std::vector<std::uint8_t> out(count * 30);
  std::uint64_t sum = 0;
  const auto chunks = [&](auto work) {
    for (std::size_t at = 0; at < count; at += kChunk) {
      const std::size_t size = std::min(kChunk, count - at);
      std::memcpy(copy, bytes.data() + at * sizeof(Slot), size * sizeof(Slot));
      sum += copy[size - 1].start;
      work(size);
    }
  };
  const double copied = best([&] { chunks([](std::size_t) {}); });
  std::uint8_t* end = out.data();
  const double written = best([&] {
    end = out.data();
    std::uint64_t last = 0;
    chunks([&](std::size_t size) {
      for (std::size_t i = 0; i < size; ++i) {
        end = put(end, copy[i].start - last);
        end = put(end, copy[i].end - copy[i].start);
        end = put(end, copy[i].name);
        last = copy[i].start;
      }
    });
  });
  std::vector<std::uint64_t> start(count), finish(count), name(count);
  const double read = best([&] {
    const std::uint8_t* in = out.data();
    std::uint64_t last = 0, value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      in = get(in, value), start[i] = last += value;
      in = get(in, value), finish[i] = last + value;
      in = get(in, name[i]);
    }
  });
  std::fprintf(stderr, "%llu\n", static_cast<unsigned long long>(sum + finish[count / 2]));
  std::printf("%.9f %.9f %.9f\n", copied, written, read);
}
