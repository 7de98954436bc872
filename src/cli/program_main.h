// The body of main(), as a function that tests can call.
#pragma once

namespace minisgl::cli {

// Runs the program with the command line `argv` and returns the exit status, one of the codes of
// sysexits (base/status.h). Does not throw.
int ProgramMain(int argc, char** argv);

}  // namespace minisgl::cli
