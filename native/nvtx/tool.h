// The slots of every copy of NVTX in this process, and which of them are ours now. Domains and registered strings are
// always: their handles are given out once. Ranges and marks only while something is recorded: a null slot costs a
// program what NVTX costs without a tool.
#pragma once

#include "abi.h"

namespace profd::nvtx {

// A copy of NVTX wants to know us. False: it has no tables that we understand.
bool attach(GetExportTable get_table);

void turn_on();
void turn_off();

// How many copies have attached.
unsigned copies();

}  // namespace profd::nvtx
