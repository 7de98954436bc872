// The subcommands of the program: each registers its options and says what to do once they are
// parsed.
//
// A CommandBody gives the exit status. It runs after the whole command line was accepted; what it
// finds wrong it says with Fail() of messages.h. Whatever an Add... function allocates for its
// options is kept alive by the body.
#pragma once

#include <functional>

namespace minisgl::load {
class OptionTable;
}

namespace minisgl::cli {

using CommandBody = std::function<int()>;

CommandBody AddRunCommand(load::OptionTable* app);
CommandBody AddChatCommand(load::OptionTable* app);
CommandBody AddBenchCommand(load::OptionTable* app);
CommandBody AddInfoCommand(load::OptionTable* app);
CommandBody AddPlanCommand(load::OptionTable* app);
CommandBody AddReportCommand(load::OptionTable* app);
CommandBody AddTokenizeCommand(load::OptionTable* app);

}  // namespace minisgl::cli
