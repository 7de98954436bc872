// Subcommands of the program. Each Add... function registers options and returns what to do after
// they are parsed.
//
// A CommandBody returns the exit status. It runs after the whole command line was accepted, and
// reports errors with Fail() of messages.h. Options allocated by an Add... function are kept alive
// by the body.
#pragma once

#include <functional>
#include <string>

#include "minisgl/base/status.h"

namespace minisgl::load {
class OptionTable;
}

namespace minisgl::cli {

using CommandBody = std::function<int()>;

CommandBody AddCacheCommand(load::OptionTable* app);
CommandBody AddRunCommand(load::OptionTable* app);
CommandBody AddChatCommand(load::OptionTable* app);
CommandBody AddBenchCommand(load::OptionTable* app);
CommandBody AddInfoCommand(load::OptionTable* app);
CommandBody AddModelsCommand(load::OptionTable* app);
CommandBody AddPlanCommand(load::OptionTable* app);
CommandBody AddPullCommand(load::OptionTable* app);
CommandBody AddReportCommand(load::OptionTable* app);
CommandBody AddScoreCommand(load::OptionTable* app);
CommandBody AddEmbedCommand(load::OptionTable* app);
CommandBody AddClassifyCommand(load::OptionTable* app);
CommandBody AddRerankCommand(load::OptionTable* app);
CommandBody AddGrammarCommand(load::OptionTable* app);
CommandBody AddTokenizeCommand(load::OptionTable* app);
CommandBody AddToolCallsCommand(load::OptionTable* app);

// Asks at the terminal whether to download `model` (OWNER/NAME), and does so; false if not, and
// without a terminal. Errors: as hub::Pull.
Result<bool> OfferPull(const std::string& model);

}  // namespace minisgl::cli
