// minisgl cache: shows, checks and clears the folder of a prefix cache. Loads no model.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "load/option_table.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"
#include "minisgl/store/cache_tools.h"
#include "term/messages.h"
#include "term/output.h"
#include "term/progress.h"

namespace minisgl::cli {
namespace {

constexpr size_t kNameBytesMax = 40;

struct CacheOptions {
  std::string folder;
  bool json = false;
  bool deletes = false;
};

// The text that a command prints, and its exit status if the text can be written.
struct Report {
  std::string text;
  int exit_status = 0;
};

std::string FormatTime(int64_t seconds, const char* format) {
  const auto time = static_cast<time_t>(seconds);
  struct tm parts {};
  std::array<char, 64> text{};
  if (gmtime_r(&time, &parts) == nullptr) return "?";
  return std::string(text.data(), strftime(text.data(), text.size(), format, &parts));
}

// "3 blocks, 1 state, 6.0 KiB"; states only if there are any.
std::string Amount(int64_t blocks, int64_t states, int64_t bytes) {
  return fmt::format(
      "{} blocks, {}{}", term::FormatCount(blocks),
      states == 0 ? ""
                  : fmt::format("{} state{}, ", term::FormatCount(states), states == 1 ? "" : "s"),
      term::FormatBytes(static_cast<uint64_t>(bytes)));
}

Json ModelJson(const CachedModel& model) {
  Json json = Json(Json::Object());
  json.Set("model", ReplaceInvalidUtf8(model.model_name)).Set("folder", model.folder);
  json.Set("blocks", model.blocks).Set("states", model.states).Set("tokens", model.tokens);
  json.Set("bytes", model.file_bytes);
  json.Set("last_use", FormatTime(model.last_use_s, "%Y-%m-%dT%H:%M:%SZ"));
  return json;
}

// One line for each model, in columns.
std::string ModelLines(const std::vector<CachedModel>& models) {
  const std::string header = "model";
  size_t width = header.size();
  std::vector<std::string> names;
  for (const CachedModel& model : models) {
    names.push_back(model.model_name.empty() ? "?" : Visible(model.model_name, kNameBytesMax));
    width = std::max(width, names.back().size());
  }
  std::string text = fmt::format("{:<{}}  {:>10}  {:>8}  {:>12}  {:>10}  {:<20}  folder\n", header,
                                 width, "blocks", "states", "tokens", "size", "last use");
  for (size_t i = 0; i < models.size(); ++i) {
    const CachedModel& model = models[i];
    text += fmt::format("{:<{}}  {:>10}  {:>8}  {:>12}  {:>10}  {:<20}  {}\n", names[i], width,
                        term::FormatCount(model.blocks), term::FormatCount(model.states),
                        term::FormatCount(model.tokens),
                        term::FormatBytes(static_cast<uint64_t>(model.file_bytes)),
                        FormatTime(model.last_use_s, "%Y-%m-%d %H:%M UTC"), model.folder);
  }
  return text;
}

Result<Report> List(const CacheOptions& options) {
  MINISGL_ASSIGN_OR_RETURN(const std::vector<CachedModel> models, ListPrefixCache(options.folder));
  if (!options.json) {
    return Report{models.empty() ? "the cache is empty\n" : ModelLines(models), 0};
  }
  Json list = Json(Json::Array());
  int64_t blocks = 0, states = 0, tokens = 0, bytes = 0;
  for (const CachedModel& model : models) {
    list.Append(ModelJson(model));
    blocks += model.blocks, states += model.states;
    tokens += model.tokens, bytes += model.file_bytes;
  }
  Json json = Json(Json::Object());
  json.Set("models", std::move(list));
  json.Set("blocks", blocks).Set("states", states).Set("tokens", tokens).Set("bytes", bytes);
  return Report{json.Dump() + "\n", 0};
}

Result<Report> Verify(const CacheOptions& options) {
  MINISGL_ASSIGN_OR_RETURN(const PrefixCacheCheck check,
                           VerifyPrefixCache(options.folder, options.deletes));
  Report report;
  const bool damage_is_left = !check.damaged.empty() && !options.deletes;
  report.exit_status = damage_is_left ? ExitCode(StatusCode::kBadInput) : 0;
  if (options.json) {
    Json list = Json(Json::Array());
    for (const DamagedFile& damaged : check.damaged) {
      Json entry = Json(Json::Object());
      list.Append(std::move(entry.Set("file", damaged.file).Set("what", damaged.what)));
    }
    Json json = Json(Json::Object());
    json.Set("blocks", check.blocks).Set("states", check.states).Set("bytes", check.file_bytes);
    json.Set("damaged", std::move(list)).Set("deleted", options.deletes);
    report.text = json.Dump() + "\n";
    return report;
  }
  for (const DamagedFile& damaged : check.damaged) {
    report.text +=
        fmt::format("{}/{}: {}\n", Visible(options.folder, 400), damaged.file, damaged.what);
  }
  report.text += fmt::format("{}: {}\n", Amount(check.blocks, check.states, check.file_bytes),
                             check.damaged.empty()
                                 ? "all good"
                                 : fmt::format("{} damaged{}", check.damaged.size(),
                                               options.deletes ? ", which were removed" : ""));
  return report;
}

Result<Report> Clear(const CacheOptions& options) {
  MINISGL_ASSIGN_OR_RETURN(const ClearedPrefixCache cleared, ClearPrefixCache(options.folder));
  if (options.json) {
    Json left = Json(Json::Array());
    for (const std::string& name : cleared.left) left.Append(ReplaceInvalidUtf8(name));
    Json json = Json(Json::Object());
    json.Set("blocks", cleared.blocks).Set("states", cleared.states);
    json.Set("bytes", cleared.file_bytes);
    json.Set("left", std::move(left));
    return Report{json.Dump() + "\n", 0};
  }
  std::string text =
      fmt::format("{}: removed\n", Amount(cleared.blocks, cleared.states, cleared.file_bytes));
  for (const std::string& name : cleared.left) {
    text += fmt::format("{}/{}: left, because it is not a file of the cache\n",
                        Visible(options.folder, 400), Visible(name, 400));
  }
  return Report{std::move(text), 0};
}

struct CacheCommand {
  const char* name;
  const char* help;
  Result<Report> (*make)(const CacheOptions& options);
};

constexpr CacheCommand kCommands[] = {
    {"ls", "Show the models in a prefix cache", List},
    {"verify", "Read all files of a prefix cache and name the damaged ones", Verify},
    {"clear", "Remove all blocks and states of a prefix cache", Clear},
};

int Run(const CacheCommand& command, const CacheOptions& options) {
  term::InstallNotes({});
  const Result<Report> report = command.make(options);
  if (!report.ok()) return term::Fail(report.status());
  const auto output = term::Output::Open("", false, -1);
  if (!output.ok()) return term::Fail(output.status());
  const int exit_status = (*output)->ExitAfter((*output)->Write(report->text));
  return exit_status != 0 ? exit_status : report->exit_status;
}

}  // namespace

CommandBody AddCacheCommand(load::OptionTable* app) {
  const auto options = std::make_shared<CacheOptions>();
  std::vector<const load::OptionTable*> subcommands;
  for (const CacheCommand& command : kCommands) {
    load::OptionTable* sub = app->AddSubcommand(command.name, command.help);
    sub->Add("DIR", &options->folder, "The folder that --prefix-cache names")
        ->Required()
        ->TypeName("DIR");
    sub->AddFlag("--json", &options->json, "Print one JSON object");
    if (command.make == Verify) {
      sub->AddFlag("--delete", &options->deletes, "Remove the damaged files");
    }
    subcommands.push_back(sub);
  }
  return [options, subcommands] {
    for (size_t i = 0; i < subcommands.size(); ++i) {
      if (subcommands[i]->parsed()) return Run(kCommands[i], *options);
    }
    return ExitCode(StatusCode::kUsage);
  };
}

}  // namespace minisgl::cli
