// See program_main.h. This file parses the command line and hands over to the subcommand's body.
#include "cli/program_main.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <vector>

#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/output.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/out_of_memory.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

struct Subcommand {
  const char* name;
  const char* help;
  CommandBody (*add)(CLI::App* app);
};

constexpr Subcommand kSubcommands[] = {
    {"run", "Answer prompts from a file, an option or standard input", AddRunCommand},
    {"chat", "Talk to the model", AddChatCommand},
    {"bench", "Measure the program on this machine", AddBenchCommand},
    {"info", "Show a model, the device and the memory plan; load nothing", AddInfoCommand},
    {"plan", "Say what running a prompt file would take; load nothing", AddPlanCommand},
    {"report", "Draw runs from their summary files", AddReportCommand},
    {"tokenize", "Show what the model is given: text after the template, and token ids",
     AddTokenizeCommand},
};

// A file opened later must not become one of the standard files because the caller closed those.
// Standard input then ends at once; writing to the others is an error, so no answer vanishes.
void KeepStandardFilesApart() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      const int opened = open("/dev/null", O_RDONLY);  // the lowest that is free: fd itself
      static_cast<void>(opened);
    }
  }
}

// --help and --version: written as other answers are, so that one that cannot be is an error.
int PrintAnswer(const CLI::App& app, const CLI::Success& success) {
  std::ostringstream text;
  app.exit(success, text, text);
  const auto output = Output::Open("", false, -1);
  if (!output.ok()) return Fail(output.status());
  return (*output)->ExitAfter((*output)->Write(text.str()));
}

std::string Choices(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* choice : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(choice->get_name());
  }
  return fmt::format("{} needs one of {}", app.get_name(), fmt::join(names, ", "));
}

constexpr std::string_view kNoSubcommand = "A subcommand is required";  // as CLI11 says it

// CLI11's shorthand as sentences; what is none of that as it is.
std::string InSentences(const std::string& what, const CLI::App& used) {
  constexpr std::string_view kValue = ": 1 required ", kMissing = " missing";
  constexpr std::string_view kOnce = ": At Most 1 required but received ";
  const size_t value = what.find(kValue);
  if (value != std::string::npos && what.ends_with(kMissing)) {
    const size_t begin = value + kValue.size();
    return fmt::format("{} needs a value ({})", what.substr(0, value),
                       what.substr(begin, what.size() - kMissing.size() - begin));
  }
  const size_t once = what.find(kOnce);
  if (once != std::string::npos) {
    return fmt::format("{} may be given once (found {})", what.substr(0, once),
                       what.substr(once + kOnce.size()));
  }
  if (what == kNoSubcommand) return Choices(used);
  return what;
}

// One line for what CLI11 found wrong.
int FailUsage(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::string command = "minisgl";
  const CLI::App* used = &app;
  while (!used->get_subcommands().empty()) {
    used = used->get_subcommands().front();
    command.append(" ").append(used->get_name());
  }
  std::string message = InSentences(error.what(), *used);
  const std::vector<std::string> extras = app.remaining(true);
  if (app.get_subcommands().empty()) {
    message = argc > 1 ? fmt::format("unknown command or option ({})", Visible(argv[1]))
                       : std::string("no command given");
  } else if (!extras.empty() && (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                                 dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)) {
    message = fmt::format("unknown option or argument ({})", Visible(extras.front()));
    if (error.what() == kNoSubcommand) message += "; " + Choices(*used);
  }
  return Fail(UsageError("{}; see {} --help", Visible(message, 400), command));
}

int Main(int argc, char** argv) {
  InstallBusErrorHandler();
  InstallOutOfMemoryHandler();
  KeepStandardFilesApart();
  // A closed pipe is an error of write(2), which ends the run in order; not a signal that ends it
  // anywhere.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // likewise a file that grows past `ulimit -f`
  const std::string version = std::string("minisgl ") + MINISGL_VERSION;
  CLI::App app("Answers prompts with a language model, in batches or in conversation.", "minisgl");
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, CommandBody>> bodies;
  for (const Subcommand& subcommand : kSubcommands) {
    CLI::App* sub = app.add_subcommand(subcommand.name, subcommand.help);
    sub->set_version_flag("--version", version);
    bodies.emplace_back(sub, subcommand.add(sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return PrintAnswer(app, success);
  } catch (const CLI::ParseError& error) {
    return FailUsage(app, error, argc, argv);
  }
  for (const auto& [sub, body] : bodies) {
    if (sub->parsed()) return body();
  }
  return ExitCode(StatusCode::kUsage);
}

}  // namespace

int ProgramMain(int argc, char** argv) {
  // The last boundary: what a library throws for want of memory ends the program with its exit
  // status, not an abort.
  try {
    return Main(argc, argv);
  } catch (const std::bad_alloc&) {
    SayOutOfMemory();
    return ExitCode(StatusCode::kOutOfMemory);
  } catch (const std::exception& error) {
    return Fail(MakeStatus(StatusCode::kInternal, "internal error ({})", Visible(error.what())));
  }
}

}  // namespace minisgl
