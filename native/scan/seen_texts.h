// Arrays and objects that came before: comparing one with those takes the place of reading it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace profd::scan {

// Of those that begin alike it keeps the last few. At most kSets * kWays * kBytesMax bytes.
class SeenTexts {
 public:
  static constexpr std::size_t kBytesMax = 512, kSets = 256, kWays = 4;

  struct Seen {
    std::uint64_t id = 0;  // the same id, the same text; 0: none
    std::string text;
  };

  SeenTexts();

  // The text that stands at p, which has kPadding bytes to look at; null: none that is known.
  const Seen* find(const char* p, const char* end) const;

  // Keeps a text, after find() of it gave null, and gives its id; 0 when it is too long.
  std::uint64_t keep(std::string_view text);

 private:
  using Set = std::array<Seen, kWays>;
  std::size_t set_of(const char* p) const;

  std::uint64_t seed_, ids_ = 0;
  std::vector<Set> sets_;
};

}  // namespace profd::scan
