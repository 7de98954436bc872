// The subcommands of the program: each registers its options and says what to do once they are
// parsed.
//
// A CommandBody gives the exit status. It runs after the whole command line was accepted; what it
// finds wrong it says with Fail() of messages.h. Whatever an Add... function allocates for its
// options is kept alive by the body.
#pragma once

#include <functional>

namespace minisgl {

class OptionTable;

using CommandBody = std::function<int()>;

CommandBody AddRunCommand(OptionTable* app);
CommandBody AddChatCommand(OptionTable* app);
CommandBody AddBenchCommand(OptionTable* app);
CommandBody AddInfoCommand(OptionTable* app);
CommandBody AddPlanCommand(OptionTable* app);
CommandBody AddReportCommand(OptionTable* app);
CommandBody AddTokenizeCommand(OptionTable* app);

}  // namespace minisgl
