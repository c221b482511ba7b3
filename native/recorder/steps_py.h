// A step that something else than profclient.step() has noticed. With the GIL.
#pragma once

namespace profd::recorder {

// False: not counted, because the program says itself what its steps are. May end the recording.
bool step_noticed();

}  // namespace profd::recorder
