// From the name of a RecordFunction to the id of its string in the arena, without touching the name where that can be
// had: in a training step most names are cold, and reading one costs more than the rest of the callback.
//
// Operators are known by the address of their schema. An address alone proves nothing about what it names, so entries
// live only as long as the dispatcher says that the operator does (OpRegistrationListener). Every other name is text
// inside the RecordFunction or on the heap: the address is reused at once for other text, so those are known by a hash
// of their content, of 128 bits, and the content that was seen first is not read again.
#pragma once

#include <ATen/core/function_schema.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "../recorder/writer.h"

namespace profd::torch_observer {

// The name of an event.
struct Name {
  uint32_t id;
  bool multiplies;  // matrices: see precision.h
};

class Names {
 public:
  // Watches the dispatcher, once per process. May block while another thread registers operators.
  void watch();

  Name of_schema(const recorder::Api& api, recorder::Thread* thread, recorder::Session session,
                     const c10::FunctionSchema* schema) {
    const Known& entry = schemas_[place(schema)];
    const uint64_t id = entry.id.load(std::memory_order_relaxed);
    if (__builtin_expect(entry.schema.load(std::memory_order_acquire) == schema && is_of(id, session), 1)) {
      return unpack(id);
    }
    return find_schema(api, thread, session, schema);
  }

  uint32_t of_text(const recorder::Api& api, recorder::Thread* thread, recorder::Session session, std::string_view text);

  // The dispatcher is about to forget an operator.
  void forget(const c10::FunctionSchema* schema);

 private:
  // Small, so that what a step needs of it stays in the caches and few pages: a job runs some hundred operators.
  static constexpr unsigned kSchemaBits = 10;
  static constexpr unsigned kSchemas = 1u << kSchemaBits;
  static constexpr unsigned kTexts = 1u << 11;
  static constexpr unsigned kProbes = 16;  // beyond that a name is looked up by the recorder each time
  static constexpr uint32_t kMultiplies = 1u << 31;  // no string has so high an id: kStringsBytesMax / kStringAlign

  struct Known {
    std::atomic<const c10::FunctionSchema*> schema;
    std::atomic<uint64_t> id;  // session's low half << 32 | string id; of an operator that multiplies | kMultiplies
  };
  struct alignas(32) Text {
    std::atomic<uint64_t> first, second;  // halves of the hash, 0: not written yet; never emptied again
    std::atomic<uint64_t> id;             // as above
  };

  static unsigned place(const void* address) {
    return static_cast<unsigned>((reinterpret_cast<uint64_t>(address) * 0x9e3779b97f4a7c15) >> (64 - kSchemaBits));
  }
  static bool is_of(uint64_t id, recorder::Session session) { return id >> 32 == static_cast<uint32_t>(session); }
  static uint64_t pack(recorder::Session session, uint32_t id) { return session << 32 | id; }
  static Name unpack(uint64_t id) {
    return {static_cast<uint32_t>(id) & ~kMultiplies, (static_cast<uint32_t>(id) & kMultiplies) != 0};
  }

  Name find_schema(const recorder::Api&, recorder::Thread*, recorder::Session, const c10::FunctionSchema*);
  uint32_t id_of(const recorder::Api&, recorder::Thread*, recorder::Session, Text& entry, std::string_view text);

  alignas(64) Known schemas_[kSchemas];
  Text texts_[kTexts];
};

}  // namespace profd::torch_observer
