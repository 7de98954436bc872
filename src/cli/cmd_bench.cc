// minisgl bench: measures the program on this machine, each figure beside what the machine allows.
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench.h"
#include "cli/commands.h"
#include "term/exit_status.h"
#include "term/messages.h"

namespace minisgl {
namespace {

// Where all benchmarks keep what was parsed.
struct BenchCommand {
  BenchOptions options;
  ThroughputOptions throughput;
  LatencyOptions latency;
  AttentionOptions attention;
};

using Runner = Status (*)(const BenchCommand& command, BenchReport* report);

struct Benchmark {
  const char* name;
  const char* help;
  void (*add)(OptionTable* app, BenchCommand* command);
  Runner run;
};

constexpr Benchmark kBenchmarks[] = {
    {"nano", "Throughput of 256 prompts of 100 to 1024 tokens, as other engines publish it",
     [](OptionTable* app, BenchCommand* c) { AddNanoOptions(app, &c->throughput); },
     [](const BenchCommand& c, BenchReport* report) {
       return BenchNano(c.options, c.throughput, report);
     }},
    {"uniform", "Throughput of N prompts of IN tokens, with answers of OUT",
     [](OptionTable* app, BenchCommand* c) { AddUniformOptions(app, &c->throughput); },
     [](const BenchCommand& c, BenchReport* report) {
       return BenchUniform(c.options, c.throughput, report);
     }},
    {"shared", "Throughput of N prompts that begin with the same PREFIX tokens",
     [](OptionTable* app, BenchCommand* c) { AddSharedOptions(app, &c->throughput); },
     [](const BenchCommand& c, BenchReport* report) {
       return BenchShared(c.options, c.throughput, report);
     }},
    {"bs1", "Time between the tokens of one answer",
     [](OptionTable* app, BenchCommand* c) { AddSingleOptions(app, &c->latency); },
     [](const BenchCommand& c, BenchReport* report) {
       return BenchSingle(c.options, c.latency, report);
     }},
    {"attn-decode", "The attention operation alone, one token a row",
     [](OptionTable* app, BenchCommand* c) { AddAttentionDecodeOptions(app, &c->attention); },
     [](const BenchCommand& c, BenchReport* report) {
       return BenchAttentionDecode(c.options, c.attention, report);
     }},
    {"attn-prefill", "The attention operation alone, a prompt at a time",
     [](OptionTable* app, BenchCommand* c) { AddAttentionPrefillOptions(app, &c->attention); },
     [](const BenchCommand& c, BenchReport* report) {
       return BenchAttentionPrefill(c.options, c.attention, report);
     }},
    {"cascade", "The attention operation alone, rows that share a prefix",
     [](OptionTable* app, BenchCommand* c) { AddCascadeOptions(app, &c->attention); },
     [](const BenchCommand& c, BenchReport* report) {
       return BenchCascade(c.options, c.attention, report);
     }},
    {"prefix", "Time to the first token with and without the prefix cache",
     [](OptionTable* app, BenchCommand* c) { AddPrefixOptions(app, &c->latency); },
     [](const BenchCommand& c, BenchReport* report) {
       return BenchPrefix(c.options, c.latency, report);
     }},
    {"spec", "Answers with and without drafted tokens",
     [](OptionTable* app, BenchCommand* c) { AddSpecOptions(app, &c->latency); },
     [](const BenchCommand& c, BenchReport* report) {
       return BenchSpec(c.options, c.latency, report);
     }},
};

bool IsAttentionOnly(const std::string& name) {
  return name.starts_with("attn-") || name == "cascade";
}

Result<int> Run(const Benchmark& benchmark, const BenchCommand& command) {
  MINISGL_ASSIGN_OR_RETURN(const auto report,
                           BenchReport::Open(command.options.json, command.options.force));
  report->json().Set("bench", benchmark.name);
  report->Line("bench", benchmark.name);
  MINISGL_RETURN_IF_ERROR(benchmark.run(command, report.get()));
  const Status finished = report->Finish();
  if (report->pipe_closed()) return kExitPipeClosed;
  MINISGL_RETURN_IF_ERROR(finished);
  return 0;
}

}  // namespace

CommandBody AddBenchCommand(OptionTable* app) {
  const auto commands =
      std::make_shared<std::vector<std::pair<const OptionTable*, BenchCommand>>>();
  commands->reserve(std::size(kBenchmarks));  // options point into it
  for (const Benchmark& benchmark : kBenchmarks) {
    OptionTable* sub = app->AddSubcommand(benchmark.name, benchmark.help);
    BenchCommand& command = commands->emplace_back(sub, BenchCommand()).second;
    benchmark.add(sub, &command);
    AddBenchOptions(sub, &command.options);
    if (IsAttentionOnly(benchmark.name)) RemoveSchedulingOptions(sub);
  }
  return [commands] {
    for (size_t i = 0; i < commands->size(); ++i) {
      const auto& [sub, command] = (*commands)[i];
      if (!sub->parsed()) continue;
      InstallNotes({command.options.quiet, command.options.verbose});
      const Result<int> exit_status = Run(kBenchmarks[i], command);
      return exit_status.ok() ? *exit_status : Fail(exit_status.status());
    }
    return ExitCode(StatusCode::kUsage);
  };
}

}  // namespace minisgl
