// See program_main.h. This file parses the command line and hands over to the subcommand's body.
#include "cli/program_main.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "load/option_table.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/out_of_memory.h"
#include "minisgl/base/utf8.h"
#include "term/messages.h"
#include "term/output.h"

namespace minisgl::cli {
namespace {

struct Subcommand {
  const char* name;
  const char* help;
  CommandBody (*add)(load::OptionTable* app);
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
int PrintAnswer(const std::string& text) {
  const auto output = term::Output::Open("", false, -1);
  if (!output.ok()) return term::Fail(output.status());
  return (*output)->ExitAfter((*output)->Write(text));
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
  load::OptionTable program(
      "minisgl", "Answers prompts with a language model, in batches or in conversation.");
  program.AddVersion(version);
  std::vector<std::pair<const load::OptionTable*, CommandBody>> bodies;
  for (const Subcommand& subcommand : kSubcommands) {
    load::OptionTable* sub = program.AddSubcommand(subcommand.name, subcommand.help);
    sub->AddVersion(version);
    bodies.emplace_back(sub, subcommand.add(sub));
  }
  const Result<std::string> answer = program.Parse({argv + std::min(argc, 1), argv + argc});
  if (!answer.ok()) return term::Fail(answer.status());
  if (!answer->empty()) return PrintAnswer(*answer);
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
    return term::Fail(
        MakeStatus(StatusCode::kInternal, "internal error ({})", Visible(error.what())));
  }
}

}  // namespace minisgl::cli
