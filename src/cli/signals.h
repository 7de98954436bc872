// SIGINT, SIGTERM and SIGHUP as a request to stop in order: the first is noted, the second leaves
// two seconds to write what is finished, the third ends the program where it is.
#pragma once

namespace minisgl {

// Call once everything is loaded; until then a signal ends the program, as anywhere.
void InstallStopSignals();

// The first signal that came, 0 while none has.
int StopSignal();

// Whether a second came: nothing more is to be waited for.
bool StopsAtOnce();

}  // namespace minisgl
