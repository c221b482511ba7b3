#include "tool.h"

#include <atomic>
#include <mutex>

#include <dlfcn.h>
#include <pthread.h>

#include "ranges.h"

namespace profd::nvtx {
namespace {

constexpr unsigned kCopiesMax = 256;

struct Table {
  Function** slots = nullptr;  // indexed by Core or Core2; slot 0 is none
  unsigned count = 0;
};

struct Tool {
  std::mutex mutex;
  struct Copy {
    Table core, core2;
  } copies[kCopiesMax];
  unsigned count = 0;
  bool on = false;
};

// Never destroyed: programs call NVTX until they have ended.
Tool& tool() {
  static Tool* const one = new Tool;
  return *one;
}

const Text* domain_of(const void* handle) { return static_cast<const Text*>(handle); }

// What programs call. A null text is a program's mistake, not ours to fall over.
Event plain(const char* text) { return {.text = text ? cut(text) : std::string_view()}; }
Event full(const void* domain, const Attributes* given) {
  const bool known = given && given->bytes >= sizeof(Attributes);
  static const Attributes none{};
  return {.domain = domain_of(domain), .attributes = known ? given : &none};
}

void mark_ex(const Attributes* given) { mark(full(nullptr, given)); }
void mark_a(const char* text) { mark(plain(text)); }
void mark_w(const wchar_t* text) {
  const std::string narrow = text ? utf8(text) : "";
  mark({.text = narrow});
}
RangeId start_ex(const Attributes* given) { return start(full(nullptr, given)); }
RangeId start_a(const char* text) { return start(plain(text)); }
RangeId start_w(const wchar_t* text) {
  const std::string narrow = text ? utf8(text) : "";
  return start({.text = narrow});
}
int push_ex(const Attributes* given) { return push(full(nullptr, given)); }
int push_a(const char* text) { return push(plain(text)); }
int push_w(const wchar_t* text) {
  const std::string narrow = text ? utf8(text) : "";
  return push({.text = narrow});
}
int pop_plain() { return pop(nullptr); }

void domain_mark(const void* domain, const Attributes* given) { mark(full(domain, given)); }
RangeId domain_start(const void* domain, const Attributes* given) { return start(full(domain, given)); }
void domain_end(const void*, RangeId id) { end(id); }
int domain_push(const void* domain, const Attributes* given) { return push(full(domain, given)); }
int domain_pop(const void* domain) { return pop(domain_of(domain)); }

const void* register_a(const void* domain, const char* text) {
  return text ? text_of(domain ? domain : &kNoTracking, std::string(cut(text))) : nullptr;
}
const void* register_w(const void* domain, const wchar_t* text) {
  return text ? text_of(domain ? domain : &kNoTracking, utf8(text)) : nullptr;
}
const void* create_a(const char* name) { return name ? text_of(nullptr, std::string(cut(name))) : nullptr; }
const void* create_w(const wchar_t* name) { return name ? text_of(nullptr, utf8(name)) : nullptr; }

template <typename Place, typename Made>
void put(const Table& table, Place place, Made* function) {
  const auto index = static_cast<unsigned>(place);
  if (index >= table.count || !table.slots[index]) return;
  // Programs read their slots without a lock.
  std::atomic_ref(*table.slots[index]).store(reinterpret_cast<Function>(function), std::memory_order_release);
}

// Null turns a function off.
template <typename Place, typename Made>
void put_if(bool on, const Table& table, Place place, Made* function) {
  put(table, place, on ? function : nullptr);
}

void set(const Tool::Copy& copy, bool on) {
  put_if(on, copy.core, Core::MarkEx, mark_ex);
  put_if(on, copy.core, Core::MarkA, mark_a);
  put_if(on, copy.core, Core::MarkW, mark_w);
  put_if(on, copy.core, Core::RangeStartEx, start_ex);
  put_if(on, copy.core, Core::RangeStartA, start_a);
  put_if(on, copy.core, Core::RangeStartW, start_w);
  put_if(on, copy.core, Core::RangeEnd, end);
  put_if(on, copy.core, Core::RangePushEx, push_ex);
  put_if(on, copy.core, Core::RangePushA, push_a);
  put_if(on, copy.core, Core::RangePushW, push_w);
  put_if(on, copy.core, Core::RangePop, pop_plain);
  put_if(on, copy.core2, Core2::DomainMarkEx, domain_mark);
  put_if(on, copy.core2, Core2::DomainRangeStartEx, domain_start);
  put_if(on, copy.core2, Core2::DomainRangeEnd, domain_end);
  put_if(on, copy.core2, Core2::DomainRangePushEx, domain_push);
  put_if(on, copy.core2, Core2::DomainRangePop, domain_pop);
}

void set_names(const Tool::Copy& copy) {
  put(copy.core2, Core2::RegisterStringA, register_a);
  put(copy.core2, Core2::RegisterStringW, register_w);
  put(copy.core2, Core2::DomainCreateA, create_a);
  put(copy.core2, Core2::DomainCreateW, create_w);
}

void set_all(bool on) {
  Tool& one = tool();
  std::lock_guard lock(one.mutex);
  one.on = on;
  for (unsigned i = 0; i < one.count; i++) set(one.copies[i], on);
}

Table table_of(const Callbacks& callbacks, Module module) {
  Table table;
  if (!callbacks.module_table(module, &table.slots, &table.count) || !table.slots) table.count = 0;
  return table;
}

// Slots are written for as long as the process lives: their library must not go before.
bool keep_loaded(const Table& table) {
  Dl_info where;
  if (table.count < 2 || !table.slots[1] || !dladdr(reinterpret_cast<void*>(table.slots[1]), &where)) return false;
  // The program itself cannot be opened by its path, and never goes.
  dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  return true;
}

// A child of a fork must find the locks free. Its parent's recording is not its own: NVTX costs it nothing again.
void prepare_forks() {
  static const int once = pthread_atfork(
      [] { tool().mutex.lock(), lock_texts(), lock_started(); },
      [] { unlock_started(), unlock_texts(), tool().mutex.unlock(); },
      [] {
        unlock_started(), unlock_texts(), tool().mutex.unlock();
        turn_off();
      });
  (void)once;
}

}  // namespace

bool attach(GetExportTable get_table) {
  prepare_forks();
  const auto* callbacks = static_cast<const Callbacks*>(get_table(ExportTable::Callbacks));
  if (!callbacks || callbacks->bytes < sizeof(Callbacks) || !callbacks->module_table) return false;
  const Tool::Copy copy{table_of(*callbacks, Module::Core), table_of(*callbacks, Module::Core2)};
  if (!keep_loaded(copy.core)) return false;
  Tool& one = tool();
  std::lock_guard lock(one.mutex);
  if (one.count == kCopiesMax) return false;
  one.copies[one.count++] = copy;
  set_names(copy);
  if (one.on) set(copy, true);  // else NVTX empties what we leave alone
  return true;
}

void turn_on() {
  prepare_forks();  // NVTX may find us later, in the child
  set_all(true);
}

void turn_off() {
  set_all(false);
  forget_started();
}

unsigned copies() {
  Tool& one = tool();
  std::lock_guard lock(one.mutex);
  return one.count;
}

}  // namespace profd::nvtx
