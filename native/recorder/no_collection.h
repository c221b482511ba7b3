// The tracer's tables must not change under it, and on CPython 3.11 a collection may begin wherever an object is made.
#pragma once

#include "parts.h"

namespace profd::tracer {

// While there is one no garbage is collected: finalizers let other threads run, and those may end the tracer. Later
// Pythons collect between two instructions of the program alone.
class NoCollection {
#if PY_VERSION_HEX < 0x030c0000
 public:
  NoCollection() : enabled_(PyGC_Disable()) {}
  ~NoCollection() {
    if (enabled_) PyGC_Enable();
  }
  NoCollection(const NoCollection&) = delete;
  NoCollection& operator=(const NoCollection&) = delete;

 private:
  const int enabled_;
#else
 public:
  NoCollection() {}
  ~NoCollection() {}
#endif
};

}  // namespace profd::tracer
