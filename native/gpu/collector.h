// The CUPTI session of this process: none while idle, subscribed from arm to stop.
//
// The functions may take long (the first arm of a process instruments its modules) and are called from a thread that
// has nothing else to do: a hook of the agent.
#pragma once

#include <cstdint>
#include <string>

#include "../recorder/writer.h"
#include "cupti_abi.h"

namespace profd::cupti {

struct Outcome {
  bool armed = false;
  std::string why;     // not armed: a sentence
  std::string notes;   // armed: what the trace should say, sentences joined by ';'
};

// Gives CUPTI the buffer callbacks of another library, whose records come to `take`.
using RegisterElsewhere = Result (*)();

struct Wishes {
  bool graph_nodes = true;  // every kernel of a CUDA graph, not the graph as one
  bool detach = false;      // CUPTI leaves the process at the end, see detach.h
};

// Subscribes and lets go at once, if nobody has yet. CUPTI's first subscription of a process waits for all that is queued on
// the GPU, and the program's CUDA calls with it (docs/gpu.md): here nothing is queued. A CUPTI that the program's Python
// may yet bring itself is not loaded for that.
void prepare();

// Subscribes and turns the kinds on. `elsewhere`: null for buffers of our own.
Outcome arm(recorder::Api& api, const Wishes& wishes, RegisterElsewhere elsewhere = nullptr);

// Whole records of a buffer that is not ours; null: so many were lost. Any thread, any time after an arm.
void take(const uint8_t* const* records, size_t count);

// Turns them off, waits a little for the records of kernels that run, takes what CUPTI still holds, and unsubscribes. Nothing if not
// armed.
void stop();

// The same at once, for another profiler of this process that is about to begin: nothing is waited for, and the state
// says it.
void leave();

// "gpu.state=ok\ngpu.records=12\n...": lines about the recording that runs or ran last. `gpu.notes` are sentences about
// what turned out, joined by ';'.
std::string report();

}  // namespace profd::cupti
