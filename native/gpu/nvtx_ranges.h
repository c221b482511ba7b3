// NVTX's ranges of a program without Python, where its NVTX has loaded libprofd_nvtx.so (native/nvtx) from beside us.
#pragma once

namespace profd::cupti {

// Into this library's own recorder, until stop_nvtx(). Does nothing where the other library is not there.
void start_nvtx();
void stop_nvtx();

}  // namespace profd::cupti
