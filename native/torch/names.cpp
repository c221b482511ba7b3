#include "names.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstring>

#include "precision.h"

namespace profd::torch_observer {
namespace {

using recorder::Api;
using recorder::Session;
using recorder::Thread;

// Stands where a forgotten operator stood, so that those behind it are still found.
const auto* const kForgotten = reinterpret_cast<const c10::FunctionSchema*>(1);

class Listener final : public c10::OpRegistrationListener {
 public:
  explicit Listener(Names* names) : names_(names) {}
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    if (op.hasSchema()) names_->forget(&op.schema());
  }

 private:
  Names* names_;
};

using Wide = unsigned __int128;

struct Hash {
  uint64_t first, second;
};

uint64_t eight(const char* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Both halves of a product: every bit of the result depends on every bit of the factors.
uint64_t mix(uint64_t one, uint64_t other) {
  const Wide product = Wide{one} * other;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Sixteen bytes at a time, each by keys of its place: no product waits for the one before. Against accidents, not against
// an attacker: a process that makes two of its names collide mislabels its own trace.
Hash hash(std::string_view text) {
  constexpr uint64_t kFirst = 0x9e3779b97f4a7c15, kSecond = 0xc4ceb9fe1a85ec53, kThird = 0xff51afd7ed558ccd;
  uint64_t key = kThird ^ text.size();
  Hash sum{key, ~key};
  const auto add = [&](uint64_t low, uint64_t high) {
    sum.first ^= mix(low ^ key, high ^ kFirst);
    sum.second ^= mix(high ^ key, low ^ kSecond);
    key += kFirst;
  };
  const char* at = text.data();
  size_t left = text.size();
  for (; left > 16; at += 16, left -= 16) add(eight(at), eight(at + 8));
  if (text.size() >= 16) {
    add(eight(at + left - 16), eight(at + left - 8));  // some of it for the second time
  } else if (left >= 8) {
    add(eight(at), eight(at + left - 8));
  } else {
    uint64_t rest = 0;
    for (; left > 0; --left) rest = rest << 8 | static_cast<unsigned char>(*at++);
    add(rest, kSecond);
  }
  return {mix(sum.first, kSecond) | 1, mix(sum.second, kThird) | 1};  // 0 says that nothing is there
}

}  // namespace

void Names::watch() {
  // The registration is never taken back: its entries must stay true for the next capture too.
  static auto* registration =
      new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>(this)));
  (void)registration;
}

void Names::forget(const c10::FunctionSchema* schema) {
  const unsigned first = place(schema);
  for (unsigned probe = 0; probe < kProbes; ++probe) {
    Known& entry = schemas_[(first + probe) % kSchemas];
    const c10::FunctionSchema* there = schema;
    if (entry.schema.compare_exchange_strong(there, kForgotten) || !there) return;
  }
}

Name Names::find_schema(const Api& api, Thread* thread, Session session, const c10::FunctionSchema* schema) {
  const std::string& name = schema->name();
  const unsigned first = place(schema);
  for (unsigned probe = 0; probe < kProbes; ++probe) {
    Known& entry = schemas_[(first + probe) % kSchemas];
    const c10::FunctionSchema* there = nullptr;
    if (!entry.schema.compare_exchange_strong(there, schema) && there != schema) continue;
    const uint64_t known = entry.id.load(std::memory_order_relaxed);
    if (there && is_of(known, session)) return unpack(known);
    const uint32_t id = recorder::intern(api, thread, session, name.data(), name.size());
    const uint64_t found = pack(session, id | (multiplies_matrices(name) ? kMultiplies : 0));
    if (id != arena::kNoName) entry.id.store(found, std::memory_order_relaxed);
    return unpack(found);
  }
  const uint32_t id = recorder::intern(api, thread, session, name.data(), name.size());
  return {id, multiplies_matrices(name)};
}

uint32_t Names::of_text(const Api& api, Thread* thread, Session session, std::string_view text) {
  const Hash key = hash(text);
  for (unsigned probe = 0; probe < kProbes; ++probe) {
    Text& entry = texts_[((key.first >> 32) + probe) % kTexts];
    uint64_t there = entry.first.load(std::memory_order_relaxed);
    if (there == 0 && entry.first.compare_exchange_strong(there, key.first)) {
      entry.second.store(key.second, std::memory_order_relaxed);
      return id_of(api, thread, session, entry, text);
    }
    if (there == key.first && entry.second.load(std::memory_order_relaxed) == key.second) {
      return id_of(api, thread, session, entry, text);
    }
  }
  return recorder::intern(api, thread, session, text.data(), text.size());
}

uint32_t Names::id_of(const Api& api, Thread* thread, Session session, Text& entry, std::string_view text) {
  const uint64_t known = entry.id.load(std::memory_order_relaxed);
  if (__builtin_expect(is_of(known, session), 1)) return static_cast<uint32_t>(known);
  const uint32_t id = recorder::intern(api, thread, session, text.data(), text.size());
  if (id != arena::kNoName) entry.id.store(pack(session, id), std::memory_order_relaxed);
  return id;
}

}  // namespace profd::torch_observer
