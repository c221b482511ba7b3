// The whole observer as one translation unit: torch's headers are most of what is compiled, and they are read once.
#include "attributes.cpp"
#include "contexts.cpp"
#include "entry.cpp"
#include "forward_threads.cpp"
#include "inputs.cpp"
#include "names.cpp"
#include "observer.cpp"
#include "script.cpp"
