#include "names.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstring>

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

uint64_t eight(const char* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Names of autograd nodes share beginnings and ends ("autograd::engine::evaluate_function: …Backward0"): what tells them
// apart stands before the last eight characters and in the middle.
uint64_t hash(std::string_view text) {
  uint64_t mixed = text.size() * 0x9e3779b97f4a7c15;
  if (text.size() >= 16) {
    mixed ^= eight(text.data() + text.size() - 16) * 0xff51afd7ed558ccd;
    mixed ^= eight(text.data() + text.size() / 2) * 0xc4ceb9fe1a85ec53;
    mixed ^= eight(text.data() + text.size() - 8);
  } else {
    for (const char letter : text) mixed = (mixed ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  return mixed * 0x9e3779b97f4a7c15;
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
    Known& entry = schemas_[(first + probe) % kPlaces];
    const c10::FunctionSchema* there = schema;
    if (entry.schema.compare_exchange_strong(there, kForgotten) || !there) return;
  }
}

uint32_t Names::find_schema(const Api& api, Thread* thread, Session session, const c10::FunctionSchema* schema) {
  const std::string& name = schema->name();
  const unsigned first = place(schema);
  for (unsigned probe = 0; probe < kProbes; ++probe) {
    Known& entry = schemas_[(first + probe) % kPlaces];
    const c10::FunctionSchema* there = nullptr;
    if (!entry.schema.compare_exchange_strong(there, schema) && there != schema) continue;
    const uint64_t known = entry.id.load(std::memory_order_relaxed);
    if (there && is_of(known, session)) return static_cast<uint32_t>(known);
    const uint32_t id = recorder::intern(api, thread, session, name.data(), name.size());
    if (id != arena::kNoName) entry.id.store(pack(session, id), std::memory_order_relaxed);
    return id;
  }
  return recorder::intern(api, thread, session, name.data(), name.size());
}

uint32_t Names::of_text(const Api& api, Thread* thread, Session session, std::string_view text) {
  const uint64_t mixed = hash(text);
  constexpr unsigned places = kPlaces / 4;
  for (unsigned probe = 0; text.size() <= kTextBytesMax && probe < kProbes; ++probe) {
    Text& entry = texts_[((mixed >> 40) + probe) % places];
    uint32_t state = entry.state.load(std::memory_order_acquire);
    if (state == 0 && entry.state.compare_exchange_strong(state, 1)) {
      entry.bytes = static_cast<uint32_t>(text.size());
      std::memcpy(entry.text, text.data(), text.size());
      entry.state.store(2, std::memory_order_release);
      return id_of(api, thread, session, entry);
    }
    if (state == 2 && entry.bytes == text.size() && !std::memcmp(entry.text, text.data(), text.size())) {
      return id_of(api, thread, session, entry);
    }
  }
  return recorder::intern(api, thread, session, text.data(), text.size());
}

uint32_t Names::id_of(const Api& api, Thread* thread, Session session, Text& entry) {
  const uint64_t known = entry.id.load(std::memory_order_relaxed);
  if (__builtin_expect(is_of(known, session), 1)) return static_cast<uint32_t>(known);
  const uint32_t id = recorder::intern(api, thread, session, entry.text, entry.bytes);
  if (id != arena::kNoName) entry.id.store(pack(session, id), std::memory_order_relaxed);
  return id;
}

}  // namespace profd::torch_observer
