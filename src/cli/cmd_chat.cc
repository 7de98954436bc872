// `minisgl chat`.
#include <unistd.h>

#include <memory>
#include <string>

#include "chat/chat.h"
#include "cli/commands.h"
#include "cli/fetch_picture.h"
#include "load/image_options.h"
#include "load/prefix_cache.h"
#include "load/sampling.h"
#include "term/messages.h"
#include "term/terminal.h"

namespace minisgl::cli {

CommandBody AddChatCommand(load::OptionTable* app) {
  const auto options = std::make_shared<chat::ChatOptions>();
  const std::string group = "Conversation";
  app->Add("-p,--prompt", &options->prompt, "Send TEXT as the first turn")
      ->TypeName("TEXT|@FILE")
      ->Group(group);
  load::AddImageFiles(app, &options->images,
                      "Show the picture in FILE with the first turn (repeatable)")
      ->Group(group);
  app->Add("--system", &options->system, "System message, or @ and the file that holds it")
      ->TypeName("TEXT|@FILE")
      ->Group(group);
  app->Add("--load", &options->load, "Continue the conversation in FILE")
      ->TypeName("FILE")
      ->Group(group);
  app->AddFlag("--continue", &options->goes_on, "Continue the conversation that was kept last")
      ->Group(group);
  app->AddFlag("--no-save", &options->no_save, "Do not keep this conversation")->Group(group);
  app->AddFlag("--commands", &options->commands, "Read commands and marks without a terminal too")
      ->Group(group)
      ->Advanced();
  app->AddChoice("--on-overflow", &options->on_overflow, chat::kContextOverflowChoices,
                 "If the context is full: drop-turns (the oldest) or error (default drop-turns)")
      ->TypeName("WHAT")
      ->Group(group)
      ->Advanced();
  app->AddFlag("--hide-thinking", &options->hide_thinking, "Do not show the reasoning of the model")
      ->Group(group);
  load::AddPlainOption(app, &options->plain)->Group(group);
  load::AddToolOptions(app, &options->tools);
  load::AddReportOptions(app, &options->reports);
  app->AddFlag("--force", &options->force, "Replace a report file that is not empty")
      ->Group("Reports");
  load::AddSamplingOptions(app, &options->sampling);
  load::AddImageOptions(app, &options->image_options, /*reads_rows=*/true);
  options->image_options.fetch = FetchPicture;
  load::AddModelOptions(app, &options->model);
  load::AddEngineOptions(app, &options->engine);
  load::AddPrefixCacheOptions(app, &options->engine.prefix_cache);
  app->Add("--chat-share", &options->engine.chat_share,
           "Share of its own rate that an answer keeps while a batch runs beside it; 0 is no bound "
           "(default 0.5; on CUDA 0.9)")
      ->Check(load::NumberIn(0, 0.99, false))
      ->TypeName("R")
      ->Group("Engine")
      ->Advanced();
  return [options] {
    term::InstallNotes({options->model.quiet, options->model.verbose});
    if (options->goes_on && !options->load.empty()) {
      return term::Fail(UsageError("--continue and --load exclude each other"));
    }
    const bool asks = term::IsTerminal(STDIN_FILENO) && term::IsTerminal(STDERR_FILENO);
    if (options->tools.any() && !options->tools.runs_unasked && !asks) {
      return term::Fail(
          UsageError("--tool: calls are confirmed at a terminal; without one, --yes-tools lets "
                     "them run unasked"));
    }
    if (options->sampling.num_logprobs) {
      return term::Fail(UsageError("--logprobs cannot be used in a chat; use minisgl run --json"));
    }
    if (const Status status = load::CheckSamplingOptions(options->sampling); !status.ok()) {
      return term::Fail(status);
    }
    options->engine.has_few_rows = true;
    report::ReportFiles reports;
    return reports.End(chat::RunChat(*options, &reports));
  };
}

}  // namespace minisgl::cli
