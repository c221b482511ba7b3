// What threads are called, for `profctl where`: py-spy gives no thread's name where one of them is odd.
#pragma once

namespace profd::sampler {

// The arguments of `confine`, then the idents of threads, `count` in all. Prints `IDENT NAME` for each that has a name,
// the name as it stands in JSON. Ends with kUnknownStatus where the target has no interpreter that it knows.
[[noreturn]] void say_names(char** arguments, int count);

}  // namespace profd::sampler
