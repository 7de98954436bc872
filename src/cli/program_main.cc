// Implements program_main.h: parses the command line and calls the subcommand.
#include "cli/program_main.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "batch/field_table.h"
#include "cli/commands.h"
#include "load/config_file.h"
#include "load/model_loader.h"
#include "load/option_names.h"
#include "load/option_table.h"
#include "load/shell_completions.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/out_of_memory.h"
#include "minisgl/base/utf8.h"
#include "term/messages.h"
#include "term/output.h"
#include "term/terminal.h"

namespace minisgl::cli {
namespace {

struct Subcommand {
  const char* name;
  const char* help;
  CommandBody (*add)(load::OptionTable* app);
};

constexpr Subcommand kSubcommands[] = {
    {"run", "Answer prompts from a file, an option or standard input", AddRunCommand},
    {"score", "Log-probabilities of given texts", AddScoreCommand},
    {"embed", "Vectors of given texts", AddEmbedCommand},
    {"classify", "Labels and scores of given texts", AddClassifyCommand},
    {"rerank", "Scores of documents for a query", AddRerankCommand},
    {"chat", "Talk to the model", AddChatCommand},
    {"bench", "Measure the program on this machine", AddBenchCommand},
    {"info", "Show a model, the device and the memory plan; load nothing", AddInfoCommand},
    {"pull", "Download a model into the hub cache", AddPullCommand},
    {"models", "List the models in the hub cache, and whether they run", AddModelsCommand},
    {"plan", "Estimate what running a prompt file would take; load nothing", AddPlanCommand},
    {"report", "Draw runs from their summary files", AddReportCommand},
    {"tokenize", "Show the model's input: text after the template, and token ids",
     AddTokenizeCommand},
    {"grammar", "Judge texts by schemas, regular expressions and grammars", AddGrammarCommand},
    {"toolcalls", "Read the calls of tools in answers of models", AddToolCallsCommand},
    {"cache", "Show, check or clear a prefix cache on disk", AddCacheCommand},
};

// If the caller closed standard files, open them on /dev/null, so that no file opened later takes
// their place. Reading standard input then ends at once; writing to the others is an error, so that
// no answer is lost unnoticed.
void KeepStandardFilesApart() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      const int opened = open("/dev/null", O_RDONLY);  // the lowest free descriptor, which is fd
      static_cast<void>(opened);
    }
  }
}

// Prints the text of --help or --version like an answer, so that a failed write is an error.
int PrintAnswer(const std::string& text) {
  const auto output = term::Output::Open("", false, -1);
  if (!output.ok()) return term::Fail(output.status());
  return (*output)->ExitAfter((*output)->Write(text));
}

// Shows a newcomer the commands, and where to begin.
int ShowCommands(const load::OptionTable& program) {
  const Result<std::string> help = program.Help({});
  term::PrintStderr(fmt::format(
      "minisgl: no command given; see minisgl --help\n\n{}\nTo begin:\n"
      "  minisgl chat -m DIR           talk to the model in a directory or a GGUF file\n"
      "  minisgl pull OWNER/NAME       download a model; then minisgl chat -m OWNER/NAME\n"
      "  minisgl run -m DIR -p TEXT    one answer",
      help.ok() ? *help : ""));
  return ExitCode(StatusCode::kUsage);
}

// The arguments of `minisgl help` and `minisgl completions`.
struct ProgramOptions {
  std::vector<std::string> help_words;
  load::Shell shell = load::Shell::kBash;
};

// The topic of help that is no command.
constexpr const char* kRowsTopic = "rows";

constexpr load::Choice<load::Shell> kShells[] = {
    {"bash", load::Shell::kBash}, {"zsh", load::Shell::kZsh}, {"fish", load::Shell::kFish}};

// The commands that are about the command line itself.
void AddProgramCommands(load::OptionTable* program, ProgramOptions* options,
                        std::vector<std::pair<const load::OptionTable*, CommandBody>>* bodies) {
  load::OptionTable* help =
      program->AddSubcommand("help", "Show the help of the program or of a command");
  std::vector<std::string> names;
  for (const Subcommand& subcommand : kSubcommands) names.emplace_back(subcommand.name);
  names.emplace_back(kRowsTopic);
  help->Add("COMMAND", &options->help_words,
            "The command, such as run or bench nano; rows: the fields of rows of files")
      ->Suggest(std::move(names));
  bodies->emplace_back(help, [program, options] {
    if (options->help_words == std::vector<std::string>{kRowsTopic}) {
      const auto columns = static_cast<size_t>(term::TerminalColumns(STDOUT_FILENO));
      return PrintAnswer(batch::FieldTable(columns));
    }
    const Result<std::string> text = program->Help(options->help_words);
    return text.ok() ? PrintAnswer(*text) : term::Fail(text.status());
  });
  load::OptionTable* completions =
      program->AddSubcommand("completions", "Print a shell's script of completions");
  completions->AddChoice("SHELL", &options->shell, kShells, "bash, zsh or fish")->Required();
  bodies->emplace_back(completions, [program, options] {
    return PrintAnswer(load::CompletionScript(options->shell, program->Describe()));
  });
}

// False for the commands that help to repair the configuration: info shows it with its error.
bool NeedsConfig(const load::OptionTable& command) {
  const std::string name = command.Describe().name;
  return name != "help" && name != "completions" && name != "info";
}

int RunBody(const CommandBody& body, const load::ConfigFile& config, bool needs_config) {
  if (needs_config && !config.status.ok()) return term::Fail(config.status);
  const int exit_status = body();
  // The option that the message is about may stand in the file.
  if (exit_status == ExitCode(StatusCode::kUsage) && !config.entries.empty()) {
    term::PrintStderr(fmt::format("minisgl: options in {} apply, too (--no-config ignores them)",
                                  Visible(config.path, 400)));
  }
  return exit_status;
}

int Main(int argc, char** argv) {
  SetSettingNames(load::OptionName);
  load::SetMissingModelHandler(OfferPull);
  InstallBusErrorHandler();
  InstallOutOfMemoryHandler();
  KeepStandardFilesApart();
  // A closed pipe should be an error of write(2), which ends the run in an orderly way. The same
  // holds for a file that exceeds `ulimit -f`.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  const std::string version = std::string("minisgl ") + MINISGL_VERSION;
  load::OptionTable program(
      "minisgl", "Answers prompts with a language model, in batches or in conversation.");
  program.AddVersion(version);
  program.UseConfig(load::ReadConfigFile(load::ConfigPath()));
  std::vector<std::pair<const load::OptionTable*, CommandBody>> bodies;
  for (const Subcommand& subcommand : kSubcommands) {
    load::OptionTable* sub = program.AddSubcommand(subcommand.name, subcommand.help);
    sub->AddVersion(version);
    bodies.emplace_back(sub, subcommand.add(sub));
  }
  ProgramOptions options;
  AddProgramCommands(&program, &options, &bodies);
  program.SetHelpWidth(static_cast<size_t>(term::TerminalColumns(STDOUT_FILENO)));
  if (argc <= 1) return ShowCommands(program);
  const Result<std::string> answer = program.Parse({argv + std::min(argc, 1), argv + argc});
  if (!answer.ok()) return term::Fail(answer.status());
  if (!answer->empty()) return PrintAnswer(*answer);
  for (const auto& [sub, body] : bodies) {
    if (sub->parsed()) return RunBody(body, *program.config(), NeedsConfig(*sub));
  }
  return ExitCode(StatusCode::kUsage);
}

}  // namespace

int ProgramMain(int argc, char** argv) {
  // Outermost handler: an exception of a library, such as std::bad_alloc, becomes an exit status
  // instead of an abort.
  try {
    return Main(argc, argv);
  } catch (const std::bad_alloc&) {
    PrintOutOfMemory();
    return ExitCode(StatusCode::kOutOfMemory);
  } catch (const std::exception& error) {
    return term::Fail(
        MakeStatus(StatusCode::kInternal, "internal error ({})", Visible(error.what())));
  }
}

}  // namespace minisgl::cli
