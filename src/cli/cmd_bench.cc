// minisgl bench: measures the program on this machine and compares each figure to the machine's
// limit.
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench.h"
#include "cli/commands.h"
#include "term/exit_status.h"
#include "term/messages.h"

namespace minisgl::cli {
namespace {

// Parsed options of all benchmarks.
struct BenchCommand {
  bench::BenchOptions options;
  bench::ThroughputOptions throughput;
  bench::LatencyOptions latency;
  bench::AttentionOptions attention;
  bench::ProductOptions products;
};

using Runner = Status (*)(const BenchCommand& command, bench::BenchReport* report);

struct Benchmark {
  const char* name;
  const char* help;
  void (*add)(load::OptionTable* app, BenchCommand* command);
  Runner run;
};

constexpr Benchmark kBenchmarks[] = {
    {"nano", "Throughput of 256 prompts of 100 to 1024 tokens, as other engines publish it",
     [](load::OptionTable* app, BenchCommand* c) { bench::AddNanoOptions(app, &c->throughput); },
     [](const BenchCommand& c, bench::BenchReport* report) {
       return bench::BenchNano(c.options, c.throughput, report);
     }},
    {"uniform", "Throughput of N prompts of IN tokens, with answers of OUT",
     [](load::OptionTable* app, BenchCommand* c) { bench::AddUniformOptions(app, &c->throughput); },
     [](const BenchCommand& c, bench::BenchReport* report) {
       return bench::BenchUniform(c.options, c.throughput, report);
     }},
    {"shared", "Throughput of N prompts that begin with the same PREFIX tokens",
     [](load::OptionTable* app, BenchCommand* c) { bench::AddSharedOptions(app, &c->throughput); },
     [](const BenchCommand& c, bench::BenchReport* report) {
       return bench::BenchShared(c.options, c.throughput, report);
     }},
    {"bs1", "Time between the tokens of one answer",
     [](load::OptionTable* app, BenchCommand* c) { bench::AddSingleOptions(app, &c->latency); },
     [](const BenchCommand& c, bench::BenchReport* report) {
       return bench::BenchSingle(c.options, c.latency, report);
     }},
    {"attn-decode", "The attention operation alone, one token a row",
     [](load::OptionTable* app, BenchCommand* c) {
       bench::AddAttentionDecodeOptions(app, &c->attention);
     },
     [](const BenchCommand& c, bench::BenchReport* report) {
       return bench::BenchAttentionDecode(c.options, c.attention, report);
     }},
    {"attn-prefill", "The attention operation alone, a prompt at a time",
     [](load::OptionTable* app, BenchCommand* c) {
       bench::AddAttentionPrefillOptions(app, &c->attention);
     },
     [](const BenchCommand& c, bench::BenchReport* report) {
       return bench::BenchAttentionPrefill(c.options, c.attention, report);
     }},
    {"cascade", "The attention operation alone, rows that share a prefix",
     [](load::OptionTable* app, BenchCommand* c) { bench::AddCascadeOptions(app, &c->attention); },
     [](const BenchCommand& c, bench::BenchReport* report) {
       return bench::BenchCascade(c.options, c.attention, report);
     }},
    {"products", "The matrix products of a model's shape, one at a time",
     [](load::OptionTable* app, BenchCommand* c) { bench::AddProductOptions(app, &c->products); },
     [](const BenchCommand& c, bench::BenchReport* report) {
       return bench::BenchProducts(c.options, c.products, report);
     }},
    {"prefix", "Time to the first token with and without the prefix cache",
     [](load::OptionTable* app, BenchCommand* c) { bench::AddPrefixOptions(app, &c->latency); },
     [](const BenchCommand& c, bench::BenchReport* report) {
       return bench::BenchPrefix(c.options, c.latency, report);
     }},
    {"spec", "Answers with and without drafted tokens",
     [](load::OptionTable* app, BenchCommand* c) { bench::AddSpecOptions(app, &c->latency); },
     [](const BenchCommand& c, bench::BenchReport* report) {
       return bench::BenchSpec(c.options, c.latency, report);
     }},
};

// Benchmarks of one operation, which no scheduler runs.
bool IsOneOperation(const std::string& name) {
  return name.starts_with("attn-") || name == "cascade" || name == "products";
}

Result<int> Run(const Benchmark& benchmark, const BenchCommand& command) {
  MINISGL_ASSIGN_OR_RETURN(const auto report,
                           bench::BenchReport::Open(command.options.json, command.options.force));
  report->json().Set("bench", benchmark.name);
  report->Line("bench", benchmark.name);
  MINISGL_RETURN_IF_ERROR(benchmark.run(command, report.get()));
  const Status finished = report->Finish();
  if (report->pipe_closed()) return term::kExitPipeClosed;
  MINISGL_RETURN_IF_ERROR(finished);
  return 0;
}

}  // namespace

CommandBody AddBenchCommand(load::OptionTable* app) {
  const auto commands =
      std::make_shared<std::vector<std::pair<const load::OptionTable*, BenchCommand>>>();
  commands->reserve(std::size(kBenchmarks));  // no reallocation: options point into it
  for (const Benchmark& benchmark : kBenchmarks) {
    load::OptionTable* sub = app->AddSubcommand(benchmark.name, benchmark.help);
    BenchCommand& command = commands->emplace_back(sub, BenchCommand()).second;
    benchmark.add(sub, &command);
    bench::AddBenchOptions(sub, &command.options);
    if (IsOneOperation(benchmark.name)) bench::RemoveSchedulingOptions(sub);
  }
  return [commands] {
    for (size_t i = 0; i < commands->size(); ++i) {
      const auto& [sub, command] = (*commands)[i];
      if (!sub->parsed()) continue;
      term::InstallNotes({command.options.quiet, command.options.verbose});
      const Result<int> exit_status = Run(kBenchmarks[i], command);
      return exit_status.ok() ? *exit_status : term::Fail(exit_status.status());
    }
    return ExitCode(StatusCode::kUsage);
  };
}

}  // namespace minisgl::cli
