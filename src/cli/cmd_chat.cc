// `minisgl chat`.
#include <memory>
#include <string>

#include "chat/chat.h"
#include "cli/commands.h"
#include "load/sampling.h"
#include "term/messages.h"

namespace minisgl::cli {

CommandBody AddChatCommand(load::OptionTable* app) {
  const auto options = std::make_shared<chat::ChatOptions>();
  const std::string group = "Conversation";
  app->Add("-p,--prompt", &options->prompt, "Say TEXT first")->TypeName("TEXT")->Group(group);
  app->Add("--system", &options->system, "System message, or @ and a file that holds it")
      ->TypeName("TEXT|@FILE")
      ->Group(group);
  app->Add("--load", &options->load, "Go on with the conversation in FILE")
      ->TypeName("FILE")
      ->Group(group);
  app->AddFlag("--commands", &options->commands,
               "Without a terminal too, take lines as commands and marks, as at one")
      ->Group(group);
  app->Add("--on-overflow", &options->on_overflow,
           "When the context is full: drop-turns (the oldest) or error (default drop-turns)")
      ->Check(load::OneOf({"drop-turns", "error"}))
      ->TypeName("WHAT")
      ->Group(group);
  app->AddFlag("--hide-thinking", &options->hide_thinking, "Do not show the reasoning of the model")
      ->Group(group);
  load::AddReportOptions(app, &options->reports);
  app->AddFlag("--force", &options->force, "Replace a report file that is not empty")
      ->Group("Reports");
  load::AddSamplingOptions(app, &options->sampling);
  load::AddModelOptions(app, &options->model);
  load::AddEngineOptions(app, &options->engine);
  return [options] {
    term::InstallNotes({options->model.quiet, options->model.verbose});
    if (options->sampling.logprobs) {
      return term::Fail(UsageError("--logprobs cannot be used in a chat; use minisgl run --json"));
    }
    if (const Status status = load::CheckSamplingOptions(options->sampling); !status.ok()) {
      return term::Fail(status);
    }
    report::ReportFiles reports;
    return reports.End(chat::RunChat(*options, &reports));
  };
}

}  // namespace minisgl::cli
