#include "elf.h"

#include <algorithm>
#include <cstring>
#include <elf.h>

#include "memory.h"

namespace profd::sampler {
namespace {

constexpr std::size_t kHeadersMax = 64, kDynamicMax = 256;
constexpr int kChainMax = 4096;  // of names that share a bucket
constexpr std::size_t kNameMax = 64;

std::uint32_t gnu_hash(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

struct Hashes {
  std::uint32_t buckets, first, bloom_words, shift;
};

}  // namespace

bool Image::open(pid_t process, std::uint64_t start) {
  process_ = process;
  Elf64_Ehdr header{};
  if (!read_value(process, start, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return false;
  }
  Elf64_Phdr parts[kHeadersMax];
  const std::size_t count = std::min<std::size_t>(header.e_phnum, kHeadersMax);
  if (!read_place(process, start + header.e_phoff, parts, count * sizeof *parts)) return false;
  const Elf64_Phdr *first = nullptr, *dynamic = nullptr;
  for (std::size_t at = 0; at < count; ++at) {
    if (parts[at].p_type == PT_LOAD && first == nullptr) first = &parts[at];
    if (parts[at].p_type == PT_DYNAMIC) dynamic = &parts[at];
  }
  if (first == nullptr || dynamic == nullptr) return false;
  bias_ = start - (first->p_vaddr & ~std::uint64_t{0xFFF});
  return read_dynamic(bias_ + dynamic->p_vaddr, dynamic->p_memsz);
}

bool Image::read_dynamic(std::uint64_t at, std::uint64_t bytes) {
  Elf64_Dyn entries[kDynamicMax];
  const std::size_t count = std::min<std::size_t>(bytes / sizeof *entries, kDynamicMax);
  if (!read_place(process_, at, entries, count * sizeof *entries)) return false;
  symbols_ = texts_ = hashes_ = 0;
  for (std::size_t each = 0; each < count && entries[each].d_tag != DT_NULL; ++each) {
    // Some linkers turn these into addresses in place, others leave them as the file has them.
    const std::uint64_t value = placed(entries[each].d_un.d_ptr);
    if (entries[each].d_tag == DT_SYMTAB) symbols_ = value;
    if (entries[each].d_tag == DT_STRTAB) texts_ = value;
    if (entries[each].d_tag == DT_GNU_HASH) hashes_ = value;
  }
  return symbols_ != 0 && texts_ != 0 && hashes_ != 0;
}

std::uint64_t Image::find(const char* name) const {
  Hashes table{};
  if (!read_value(process_, hashes_, table) || table.buckets == 0) return 0;
  const std::uint32_t hash = gnu_hash(name);
  const std::uint64_t buckets = hashes_ + sizeof table + std::uint64_t{8} * table.bloom_words;
  const std::uint64_t chains = buckets + std::uint64_t{4} * table.buckets;
  std::uint32_t symbol = 0;
  if (!read_value(process_, buckets + std::uint64_t{4} * (hash % table.buckets), symbol) || symbol < table.first) return 0;
  const std::size_t length = std::strlen(name) + 1;
  for (int steps = 0; steps < kChainMax && length <= kNameMax; ++steps, ++symbol) {
    std::uint32_t link = 0;
    if (!read_value(process_, chains + std::uint64_t{4} * (symbol - table.first), link)) return 0;
    Elf64_Sym found{};
    char said[kNameMax];
    if ((link | 1) == (hash | 1) && read_value(process_, symbols_ + sizeof found * symbol, found) &&
        found.st_shndx != SHN_UNDEF && read_place(process_, texts_ + found.st_name, said, length) &&
        std::memcmp(said, name, length) == 0) {
      return bias_ + found.st_value;
    }
    if ((link & 1) != 0) return 0;
  }
  return 0;
}

}  // namespace profd::sampler
