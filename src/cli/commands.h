// The subcommands of the program: each registers its options and says what to do once they are
// parsed.
//
// A CommandBody gives the exit status. It runs after the whole command line was accepted; what it
// finds wrong it says with Fail() of messages.h. Whatever an Add... function allocates for its
// options is kept alive by the body.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace minisgl {

using CommandBody = std::function<int()>;

CommandBody AddRunCommand(CLI::App* app);
CommandBody AddChatCommand(CLI::App* app);
CommandBody AddBenchCommand(CLI::App* app);
CommandBody AddInfoCommand(CLI::App* app);
CommandBody AddPlanCommand(CLI::App* app);
CommandBody AddReportCommand(CLI::App* app);
CommandBody AddTokenizeCommand(CLI::App* app);

}  // namespace minisgl
