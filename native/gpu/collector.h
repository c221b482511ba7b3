// The CUPTI session of this process: none while idle, subscribed from arm to stop.
//
// The functions may take long (the first arm of a process instruments its modules) and are called from a thread that
// has nothing else to do: a hook of the agent.
#pragma once

#include <cstdint>
#include <string>

#include "../recorder/writer.h"

namespace profd::cupti {

struct Outcome {
  bool armed = false;
  std::string why;     // not armed: a sentence
  std::string notes;   // armed: what the trace should say, sentences joined by ';'
};

// Subscribes and turns the kinds on. `graph_nodes`: every kernel of a CUDA graph, not the graph as one.
Outcome arm(recorder::Api& api, bool graph_nodes);

// Turns them off, waits a little for the kernels that run, takes what CUPTI still holds, and unsubscribes. Nothing if not
// armed.
void stop();

// "gpu.state=ok\ngpu.records=12\n...": lines about the recording that runs or ran last. `gpu.notes` are sentences about
// what turned out, joined by ';'.
std::string report();

}  // namespace profd::cupti
