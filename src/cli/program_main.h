// The whole program: what main() is, to be called by tests too.
#pragma once

namespace minisgl::cli {

// Answers prompts in batches or in conversation, as `argv` says; gives the exit status, one of
// sysexits' codes (base/status.h). Throws nothing.
int ProgramMain(int argc, char** argv);

}  // namespace minisgl::cli
