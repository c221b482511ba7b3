// Feeds mutated bodies of event chunks to the reader until time is up; the sanitizers say what is wrong. No part of any
// build: see tools/fuzz_chunks.
//
//   ./fuzz_chunk seconds seed body...   ->   how many bodies were read, and how many of them were taken
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>

#include "chunk_reader.h"

using namespace profd::scan;

static std::string mutated(const std::vector<std::string>& corpus, std::mt19937_64& random) {
  std::string body = corpus[random() % corpus.size()];
  for (std::uint64_t left = random() % 6; left > 0 && !body.empty(); --left) {
    const std::size_t at = random() % body.size();
    switch (random() % 6) {
      case 0:
        body[at] = static_cast<char>(random());
        break;
      case 1:
        body[at] = static_cast<char>(0xFF);
        break;
      case 2:
        body.erase(at, random() % 16);
        break;
      case 3:
        body.insert(at, random() % 12, static_cast<char>(random()));
        break;
      case 4:
        body.resize(at);
        break;
      default: {
        const std::string& other = corpus[random() % corpus.size()];
        body.replace(at, random() % 64, other, random() % (other.size() + 1), random() % 64);
      }
    }
  }
  return body;
}

int main(int count, char** arguments) {
  if (count < 4) return 2;
  std::vector<std::string> corpus;
  for (int at = 3; at < count; ++at) {
    std::ifstream file(arguments[at], std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  std::mt19937_64 random(std::strtoull(arguments[2], nullptr, 10));
  const std::time_t end = std::time(nullptr) + std::atoi(arguments[1]);
  std::uint64_t read = 0, taken = 0;
  while (std::time(nullptr) < end) {
    ChunkReader reader(ChunkLimits{1 << 20, 1000, 1000});
    for (std::uint64_t sequence = 0; sequence < 20; ++sequence) {
      const std::string body = mutated(corpus, random);
      const auto slots = static_cast<std::uint32_t>(random() % 4 ? 2044 : random() % 65'536);
      const ChunkPlace place{static_cast<std::uint32_t>(random() % 3), 7, static_cast<std::uint32_t>(random() % 3), sequence,
                             100, static_cast<std::uint32_t>(random() % 20), 1, 1'700'000'000'000'000'000, slots,
                             static_cast<std::uint32_t>(random() % 50)};
      ++read;
      const auto indexed = reader.index(place, body);
      if (!indexed) continue;
      const std::size_t before = reader.columns.size();
      ChunkPlace known = place;
      // As many events as there are, or the rest of the reader would hardly be reached.
      for (known.events = 0; known.events < 60 && !reader.add(known, body); ++known.events) {
      }
      taken += known.events < 60;
      for (std::size_t row = before; row < reader.columns.size(); ++row) {
        if (reader.columns.start[row] < indexed->first) std::abort();
      }
    }
    reader.columns.pad();
  }
  std::printf("%" PRIu64 " bodies read, %" PRIu64 " taken\n", read, taken);
}
