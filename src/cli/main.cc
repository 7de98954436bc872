// Entry point. The program is in a library, so that tests can link it.
#include "cli/program_main.h"

int main(int argc, char** argv) { return minisgl::cli::ProgramMain(argc, argv); }
