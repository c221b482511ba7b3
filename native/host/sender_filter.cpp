#include "sender_filter.h"

#include <linux/bpf.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

namespace profd::host {
namespace {

// Names that older headers lack.
constexpr std::uint32_t kMappable = 1U << 10;  // BPF_F_MMAPABLE
constexpr std::uint8_t kAtomic = 0xc0;         // BPF_ATOMIC; with no more it adds
constexpr int kMapValue = 2;                   // BPF_PSEUDO_MAP_VALUE
constexpr int kAttachFilter = 50;              // SO_ATTACH_BPF

constexpr std::int32_t kSecond = 1'000'000'000;
constexpr char kName[] = "profd_senders";

// What both maps of senders hold.
struct Said {
  std::uint64_t second;
  std::uint64_t count;
};

enum Register : std::uint8_t { R0, R1, R2, R3, R4, NOW = 6, USER, PROCESS, FRAME = 10 };

// On the stack, from its end down.
constexpr std::int16_t kUid = -4, kTgid = -8, kFresh = -8 - std::int16_t(sizeof(Said));
constexpr std::int16_t kSecondOf = offsetof(Said, second), kCountOf = offsetof(Said, count);

class Descriptor {
 public:
  Descriptor(int command, bpf_attr& attributes, const char* what)
      : fd_(int(::syscall(SYS_bpf, command, &attributes, sizeof(attributes)))) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), what);
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

bpf_attr map_of(std::uint32_t type, std::uint32_t key, std::uint32_t value, std::uint32_t entries, std::uint32_t flags) {
  bpf_attr attributes;
  std::memset(&attributes, 0, sizeof(attributes));
  attributes.map_type = type;
  attributes.key_size = key;
  attributes.value_size = value;
  attributes.max_entries = entries;
  attributes.map_flags = flags;
  std::memcpy(attributes.map_name, kName, sizeof(kName));
  return attributes;
}

// Instructions, and jumps forward to what comes later.
class Assembly {
 public:
  using Label = std::vector<std::size_t>;

  void add(std::uint8_t code, std::uint8_t to, std::uint8_t from, std::int16_t offset, std::int32_t value) {
    bpf_insn instruction{};
    instruction.code = code;
    instruction.dst_reg = to;
    instruction.src_reg = from;
    instruction.off = offset;
    instruction.imm = value;
    code_.push_back(instruction);
  }
  void set(Register to, std::int32_t value) { add(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value); }
  void copy(Register to, Register from) { add(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0); }
  void calculate(std::uint8_t operation, Register to, std::int32_t by) { add(BPF_ALU64 | operation | BPF_K, to, 0, 0, by); }
  void call(bpf_func_id helper) { add(BPF_JMP | BPF_CALL, 0, 0, 0, helper); }
  void load(Register to, Register at, std::int16_t offset) { add(BPF_LDX | BPF_MEM | BPF_DW, to, at, offset, 0); }
  void store(std::uint8_t size, Register at, std::int16_t offset, Register from) {
    add(BPF_STX | BPF_MEM | size, at, from, offset, 0);
  }
  void clear(Register at, std::int16_t offset) { add(BPF_ST | BPF_MEM | BPF_DW, at, 0, offset, 0); }
  void count(Register at, std::int16_t offset, Register by) { add(BPF_STX | kAtomic | BPF_DW, at, by, offset, BPF_ADD); }
  void map(Register to, int descriptor, int kind = BPF_PSEUDO_MAP_FD) {
    add(BPF_LD | BPF_DW | BPF_IMM, to, std::uint8_t(kind), 0, descriptor);
    add(0, 0, 0, 0, 0);  // of a map's value the first byte
  }
  void stack(Register to, std::int16_t offset) {
    copy(to, FRAME);
    calculate(BPF_ADD, to, offset);
  }
  void jump(std::uint8_t condition, Register one, std::int32_t other, Label& to) {
    to.push_back(code_.size());
    add(BPF_JMP | condition | BPF_K, one, 0, 0, other);
  }
  void jump(std::uint8_t condition, Register one, Register other, Label& to) {
    to.push_back(code_.size());
    add(BPF_JMP | condition | BPF_X, one, other, 0, 0);
  }
  // Here is where these jumps lead.
  void here(const Label& label) {
    for (const std::size_t from : label) code_[from].off = std::int16_t(code_.size() - from - 1);
  }
  void end(std::int32_t answer) {
    set(R0, answer);
    add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
  }
  const std::vector<bpf_insn>& code() const { return code_; }

 private:
  std::vector<bpf_insn> code_;
};

// `found`: what this sender has said in this second. A sender without a place is let through: others have taken none from it.
void look_up(Assembly& to, int map, std::int16_t key, Register found, Assembly::Label& keep) {
  Assembly::Label known, current;
  to.map(R1, map);
  to.stack(R2, key);
  to.call(BPF_FUNC_map_lookup_elem);
  to.jump(BPF_JNE, R0, 0, known);
  to.map(R1, map);
  to.stack(R2, key);
  to.stack(R3, kFresh);
  to.set(R4, BPF_NOEXIST);  // another thread of it may have come first
  to.call(BPF_FUNC_map_update_elem);
  to.map(R1, map);
  to.stack(R2, key);
  to.call(BPF_FUNC_map_lookup_elem);
  to.jump(BPF_JEQ, R0, 0, keep);
  to.here(known);
  to.copy(found, R0);
  to.load(R1, found, kSecondOf);
  to.jump(BPF_JGE, R1, NOW, current);  // later: a processor that read the clock after us was here
  to.clear(found, kCountOf);
  to.store(BPF_DW, found, kSecondOf, NOW);
  to.here(current);
}

void drop_beyond(Assembly& to, Register said, std::uint32_t limit, Assembly::Label& drop) {
  to.load(R1, said, kCountOf);
  to.jump(BPF_JGE, R1, std::int32_t(limit), drop);
}

// The rules of Shares::beyond.
std::vector<bpf_insn> assembled(const FilterLimits& limits, bool by_user, int users, int processes, int dropped) {
  Assembly to;
  Assembly::Label keep, drop;
  to.call(BPF_FUNC_ktime_get_ns);
  to.copy(NOW, R0);
  to.calculate(BPF_DIV, NOW, kSecond);
  to.store(BPF_DW, FRAME, kFresh + kSecondOf, NOW);
  to.clear(FRAME, kFresh + kCountOf);
  if (by_user) {
    to.call(BPF_FUNC_get_current_uid_gid);
    to.store(BPF_W, FRAME, kUid, R0);
    look_up(to, users, kUid, USER, keep);
    drop_beyond(to, USER, limits.of_user, drop);
  }
  to.call(BPF_FUNC_get_current_pid_tgid);
  to.calculate(BPF_RSH, R0, 32);
  to.store(BPF_W, FRAME, kTgid, R0);
  look_up(to, processes, kTgid, PROCESS, keep);
  drop_beyond(to, PROCESS, limits.of_process, drop);  // and its user's others are not to suffer for it
  to.set(R1, 1);
  to.count(PROCESS, kCountOf, R1);
  if (by_user) to.count(USER, kCountOf, R1);
  to.here(keep);
  to.end(-1);  // all of its bytes
  to.here(drop);
  to.map(R1, dropped, kMapValue);
  to.set(R2, 1);
  to.count(R1, 0, R2);
  to.end(0);
  return to.code();
}

bpf_attr program_of(const std::vector<bpf_insn>& code) {
  bpf_attr attributes;
  std::memset(&attributes, 0, sizeof(attributes));
  attributes.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
  attributes.insns = reinterpret_cast<std::uint64_t>(code.data());
  attributes.insn_cnt = std::uint32_t(code.size());
  attributes.license = reinterpret_cast<std::uint64_t>("Apache-2.0");  // it calls nothing that is for GPL alone
  std::memcpy(attributes.prog_name, kName, sizeof(kName));
  return attributes;
}

std::size_t page() { return std::size_t(::sysconf(_SC_PAGESIZE)); }

}  // namespace

SenderFilter::SenderFilter(const FilterLimits& limits, bool by_user) {
  constexpr std::uint32_t key = sizeof(std::uint32_t), said = sizeof(Said);
  bpf_attr of_senders = map_of(BPF_MAP_TYPE_LRU_HASH, key, said, limits.remembered, 0);
  const Descriptor users(BPF_MAP_CREATE, of_senders, "bpf(BPF_MAP_CREATE)");
  const Descriptor processes(BPF_MAP_CREATE, of_senders, "bpf(BPF_MAP_CREATE)");
  // Read from memory: without CAP_BPF hosts may refuse to be asked for it.
  bpf_attr of_drops = map_of(BPF_MAP_TYPE_ARRAY, key, sizeof(*dropped_), 1, kMappable);
  const Descriptor drops(BPF_MAP_CREATE, of_drops, "bpf(BPF_MAP_CREATE)");
  const std::vector<bpf_insn> code = assembled(limits, by_user, users.get(), processes.get(), drops.get());
  bpf_attr attributes = program_of(code);
  Descriptor program(BPF_PROG_LOAD, attributes, "bpf(BPF_PROG_LOAD)");
  void* const mapped = ::mmap(nullptr, page(), PROT_READ, MAP_SHARED, drops.get(), 0);
  if (mapped == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap of a bpf map");
  dropped_ = static_cast<const std::uint64_t*>(mapped);
  program_ = program.release();
}

SenderFilter::~SenderFilter() {
  ::munmap(const_cast<std::uint64_t*>(dropped_), page());
  ::close(program_);
}

void SenderFilter::attach(int socket) const {
  if (::setsockopt(socket, SOL_SOCKET, kAttachFilter, &program_, sizeof(program_)) != 0) {
    throw std::system_error(errno, std::generic_category(), "setsockopt(SO_ATTACH_BPF)");
  }
}

std::uint64_t SenderFilter::dropped() const { return __atomic_load_n(dropped_, __ATOMIC_RELAXED); }

}  // namespace profd::host
