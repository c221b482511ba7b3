// Buffers of CUPTI records, right and wrong, against the walker (tools/fuzz_cupti builds it with ASan and UBSan).
//
// fuzz_walk SECONDS SEED: makes buffers of records of every kind and version, changes some bytes, cuts the end off, and
// walks them into a real arena. Names point to texts, to nothing, to memory that is gone, and to the end of a page.
// Whatever comes, each record must be accounted for: recorded, left out on purpose, or counted as lost.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "../recorder/recorder.h"
#include "walk.h"

namespace {

using namespace profd;
using cupti::Activity;

struct Size {
  Activity kind;
  std::vector<size_t> bytes;  // of all versions
};
const std::vector<Size> kSizes = {
    {Activity::Kernel, {208, 216, 224, 232, 248}}, {Activity::Memcpy, {88, 96, 112}},
    {Activity::MemcpyPeer, {96}},                  {Activity::Memset, {88, 104}},
    {Activity::Driver, {40}},                      {Activity::Runtime, {40}},
    {Activity::Overhead, {40, 56}},                {Activity::Synchronization, {40, 56}},
    {Activity::ExternalCorrelation, {24}},         {Activity::GraphTrace, {48, 56}},
    {static_cast<Activity>(12), {56}},  // markers: nobody asked for them
};

std::mt19937_64 random_bits;
uint64_t below(uint64_t limit) { return limit ? random_bits() % limit : 0; }

// A buffer and where its records begin: as CUPTI itself knows them, and whatever their bytes say.
struct Buffer {
  std::vector<uint8_t> bytes;
  std::vector<size_t> starts;

};
const Buffer* walked = nullptr;

int32_t next_record(uint8_t* buffer, size_t valid, uint8_t** record) {
  size_t at = 0;
  if (*record) {
    const auto before = static_cast<size_t>(*record - buffer);
    while (at < walked->starts.size() && walked->starts[at] <= before) at++;
  }
  if (at >= walked->starts.size() || walked->starts[at] + 4 > valid) return 21;
  *record = buffer + walked->starts[at];
  return 0;
}
int32_t callback_name(uint32_t, uint32_t id, const char** name) {
  static const char* const kNames[] = {"cudaLaunchKernel_v7000", "cudaGetDevice_v3020", "cuLaunchKernel", "_v1", "", "cu"};
  if (id % 8 >= std::size(kNames)) return 1;
  *name = kNames[id % 8];
  return 0;
}
int32_t get_timestamp(uint64_t* at) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *at = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  return 0;
}

// Two pages, the second of which is gone: texts at the end of the first.
const char* edge_of_page() {
  static char* const page = [] {
    auto* both = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(both, 'x', 4096);
    munmap(both + 4096, 4096);
    return both;
  }();
  return page + 4096 - 1 - below(64);
}

const char* some_name() {
  static const std::string kLong(70'000, 'n');
  switch (below(6)) {
    case 0: return nullptr;
    case 1: return edge_of_page();
    case 2: return reinterpret_cast<const char*>(8 * below(512));  // the page at 0
    case 3: return kLong.c_str();
    case 4: return "";
    default: return "void gemm<float>(int)";
  }
}

uint64_t some_time() {
  uint64_t now;
  get_timestamp(&now);
  switch (below(8)) {
    case 0: return 0;
    case 1: return random_bits();
    case 2: return UINT64_MAX - below(3);
    default: return now - below(1'000'000);
  }
}

void put(uint8_t* at, uint64_t value, size_t bytes) { std::memcpy(at, &value, bytes); }

Buffer some_buffer() {
  Buffer made;
  for (uint64_t records = below(60); records > 0; records--) {
    const Size& size = kSizes[below(kSizes.size())];
    const size_t from = made.bytes.size();
    made.starts.push_back(from);
    made.bytes.resize(from + size.bytes[below(size.bytes.size())]);
    uint8_t* at = made.bytes.data() + from;
    for (size_t i = 4; i + 8 <= made.bytes.size() - from; i += 8) put(at + i, below(4) ? below(300) : random_bits(), 8);
    put(at, static_cast<uint32_t>(size.kind), 4);
    const bool call = size.kind == Activity::Runtime || size.kind == Activity::Driver ||
                      size.kind == Activity::Synchronization || size.kind == Activity::GraphTrace;
    const size_t times = call ? 8 : size.kind == Activity::Overhead ? 24 : 16;
    if (size.kind != Activity::ExternalCorrelation) put(at + times, some_time(), 8), put(at + times + 8, some_time(), 8);
    if (size.kind == Activity::ExternalCorrelation) put(at + 4, below(3) ? 5 : below(7), 4);
  }
  for (size_t i = 0; i < made.starts.size(); i++) {
    uint8_t* at = made.bytes.data() + made.starts[i];
    const size_t bytes = (i + 1 < made.starts.size() ? made.starts[i + 1] : made.bytes.size()) - made.starts[i];
    if (below(30) == 0) put(at, 1 + below(70), 4);
    // A name is a pointer that CUPTI has had. (Others could lie in the sanitizer's own memory, which it may not read.)
    const bool kernel = cupti::field<uint32_t>(at, 0) == static_cast<uint32_t>(Activity::Kernel);
    if (kernel && bytes < cupti::kernel::kName + 8) put(at, 60, 4);
    else if (kernel) put(at + cupti::kernel::kName, reinterpret_cast<uint64_t>(some_name()), 8);
  }
  if (!made.bytes.empty() && below(4) == 0) made.bytes.resize(1 + below(made.bytes.size()));
  return made;
}

// Records of the kind EXTERNAL_CORRELATION that are whole: they become no event.
uint64_t externals(const Buffer& buffer) {
  uint64_t found = 0;
  for (const size_t start : buffer.starts)
    found += start + 20 <= buffer.bytes.size() &&
             cupti::field<uint32_t>(buffer.bytes.data() + start, 0) == static_cast<uint32_t>(Activity::ExternalCorrelation);
  return found;
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return std::printf("fuzz_walk SECONDS SEED\n"), 2;
  random_bits.seed(std::strtoull(arguments[2], nullptr, 10));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(arguments[1]));
  cupti::Functions functions{};
  functions.next_record = next_record;
  functions.callback_name = callback_name;
  functions.get_timestamp = get_timestamp;
  cupti::ClockFit clock;
  cupti::Walker walker(functions, recorder::api, clock);
  uint64_t buffers = 0, records = 0;
  while (std::chrono::steady_clock::now() < end) {
    std::string why;
    check(clock.begin(functions), "no clock");
    if (below(3) == 0) clock.add({static_cast<int64_t>(random_bits()), static_cast<int64_t>(some_time() >> 4), 0, 1});
    check(recorder::arm({1, uint64_t{2} << 20, 1 << 18, below(8) ? recorder::kGpu : recorder::kRanges}, &why), why.c_str());
    walker.reset_counts();
    uint64_t named = 0;
    for (int i = 0; i < 200; i++, buffers++) {
      const Buffer buffer = some_buffer();
      // Its own memory, as long as it is: the sanitizer sees a byte too much.
      const std::unique_ptr<uint8_t[]> own(new uint8_t[buffer.bytes.size()]);
      if (!buffer.bytes.empty()) std::memcpy(own.get(), buffer.bytes.data(), buffer.bytes.size());
      walked = &buffer;
      walker.walk(own.get(), buffer.bytes.size());
      named += externals(buffer);
    }
    const cupti::Counts& seen = walker.counts;
    records += seen.records;
    const recorder::Totals totals = recorder::totals();
    const uint64_t full = totals.lost[static_cast<size_t>(arena::Lost::ArenaFull)];
    const uint64_t bad = totals.lost[static_cast<size_t>(arena::Lost::CuptiBadTime)];
    check(bad == seen.bad_times, "a bad time was not counted");
    if (seen.late == 0)
      check(seen.records == seen.events + full + bad + seen.filtered + seen.unknown + named,
            "a record is accounted for nowhere");
    recorder::disarm();
    while (!recorder::release()) {}
  }
  std::printf("%llu buffers, %llu records\n", static_cast<unsigned long long>(buffers),
              static_cast<unsigned long long>(records));
}
