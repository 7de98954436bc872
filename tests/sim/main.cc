// The simulation's long run.
//
//   sim --seeds N [--first S]   runs seeds S .. S + N - 1; the last line is
//                               `N seeds, V violations, X steps/s`
//   sim --pictures N [--first S]   the same of the workloads with pictures alone
//   sim --whole N [--first S]   the same of those with prompts that are computed whole
//   sim --hunt N                runs seeds until one fails, at most N
//   sim --trace SEED            prints every plan and event of one seed
//   sim --trace-marked SEED     the same of its workload with marks
//   sim --trace-pictures SEED   the same of its workload with pictures
//   sim --trace-whole SEED   the same of its workload with prompts that are computed whole
//
// Every seed runs its plain workload, and an even one the one with marks, an odd one that with
// pictures, and every second odd one that with prompts that are computed whole.
// A failing seed is shrunk and described. Exits 1 if any failed, 64 for a wrong command line.
#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string_view>

#include "sim/workload.h"

namespace minisgl::sim {
namespace {

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

void Report(const Workload& workload, const Outcome& outcome) {
  std::fputs(fmt::format("{}\n  violated at step {}: {}\n", workload.Describe(), outcome.steps,
                         outcome.violation)
                 .c_str(),
             stdout);
  const Workload small = Shrink(workload);
  std::fputs(
      fmt::format("shrunk to {}\n  violated: {}\n", small.Describe(), Simulate(small).violation)
          .c_str(),
      stdout);
}

// `alone`: of each seed the workload of this kind, whatever KindsOf says.
int RunSeeds(uint64_t first, uint64_t count, std::optional<WorkloadKind> alone) {
  const auto begin = std::chrono::steady_clock::now();
  int64_t steps = 0, preemptions = 0, remapped = 0, evicted = 0, reclaimed = 0, aborted = 0,
          failed = 0;
  int64_t encoded = 0, reused = 0;
  int64_t drafted = 0, accepted = 0, loaded = 0, failed_loads = 0, turns = 0, scored = 0;
  int64_t saved = 0, dropped = 0, saved_states = 0, loaded_states = 0, from_snapshots = 0,
          evicted_snapshots = 0;
  uint64_t violations = 0;
  const auto run = [&](uint64_t seed, WorkloadKind kind) {
    const Workload workload = DrawWorkload(seed, kind);
    const Outcome outcome = Simulate(workload);
    steps += outcome.steps;
    preemptions += outcome.stats.preemptions;
    remapped += outcome.stats.remapped_pages;
    evicted += outcome.stats.evicted_pages;
    reclaimed += outcome.stats.reclaimed_window_pages;
    aborted += outcome.stats.aborted;
    failed += outcome.stats.failed;
    drafted += outcome.stats.drafted_tokens;
    accepted += outcome.stats.accepted_drafts;
    loaded += outcome.stats.loaded_tokens;
    saved += outcome.stats.saved_pages;
    saved_states += outcome.stats.saved_states;
    loaded_states += outcome.stats.loaded_states;
    dropped += outcome.stats.dropped_pages;
    failed_loads += outcome.stats.failed_loads;
    encoded += outcome.stats.encoded_inputs;
    reused += outcome.stats.reused_inputs;
    if (workload.limits.num_state_slots > 0) from_snapshots += outcome.stats.cached_tokens;
    evicted_snapshots += outcome.stats.evicted_snapshots;
    turns += outcome.turns;
    scored += outcome.stats.scored_tokens;
    if (!outcome.violation.empty() && ++violations <= 5) Report(workload, outcome);
  };
  for (uint64_t seed = first; seed < first + count; ++seed) {
    if (alone) {
      run(seed, *alone);
      continue;
    }
    for (const WorkloadKind kind : KindsOf(seed)) run(seed, kind);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::fputs(
      fmt::format(
          "{} preemptions, {} pages remapped, {} evicted, {} window pages reclaimed, {} aborts, {} "
          "failures\n"
          "{} drafts, {} accepted, {} tokens loaded, {} loads failed, {} turns, {} tokens scored\n"
          "{} pages saved, {} dropped; {} states saved, {} loaded; {} tokens from snapshots, {} "
          "snapshots evicted; {} pictures encoded, {} found\n",
          preemptions, remapped, evicted, reclaimed, aborted, failed, drafted, accepted, loaded,
          failed_loads, turns, scored, saved, dropped, saved_states, loaded_states, from_snapshots,
          evicted_snapshots, encoded, reused)
          .c_str(),
      stdout);
  std::fputs(fmt::format("{} seeds, {} violations, {:.0f} steps/s\n", count, violations,
                         static_cast<double>(steps) / seconds.count())
                 .c_str(),
             stdout);
  return violations == 0 ? 0 : 1;
}

volatile std::sig_atomic_t g_seed = 0;

// A mutant may crash instead of failing a check: that counts as found.
void OnCrash(int) {
  char text[] = "crash at seed 000000\n";
  int seed = g_seed;
  for (size_t at = sizeof(text) - 3; text[at] == '0'; --at, seed /= 10) {
    text[at] = static_cast<char>('0' + seed % 10);
  }
  const ssize_t ignored = write(STDOUT_FILENO, text, sizeof(text) - 1);
  static_cast<void>(ignored);
  _exit(1);
}

int Hunt(uint64_t count) {
  for (const int signal_number : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS}) signal(signal_number, OnCrash);
  for (uint64_t seed = 1; seed <= count; ++seed) {
    g_seed = static_cast<std::sig_atomic_t>(seed);
    for (const WorkloadKind kind : KindsOf(seed)) {
      const Outcome outcome = Simulate(DrawWorkload(seed, kind));
      if (outcome.violation.empty()) continue;
      const char* suffix = kind == WorkloadKind::kMarked     ? " with marks"
                           : kind == WorkloadKind::kPictures ? " with pictures"
                           : kind == WorkloadKind::kWhole    ? " with whole prompts"
                                                             : "";
      std::fputs(fmt::format("found at seed {}{}: {}\n", seed, suffix, outcome.violation).c_str(),
                 stdout);
      return 1;
    }
  }
  std::fputs(fmt::format("nothing found in {} seeds\n", count).c_str(), stdout);
  return 0;
}

int Main(int argc, char** argv) {
  uint64_t first = 1, count = 0;
  std::optional<WorkloadKind> alone;
  std::optional<uint64_t> traced;
  WorkloadKind traced_kind = WorkloadKind::kPlain;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    const auto value = ParseNumber(argv[i + 1]);
    if (!value) break;
    if (option == "--seeds" || option == "--pictures" || option == "--whole") count = *value;
    if (option == "--pictures") alone = WorkloadKind::kPictures;
    if (option == "--whole") alone = WorkloadKind::kWhole;
    if (option == "--first") first = *value;
    if (option.starts_with("--trace")) traced = *value;
    if (option == "--trace-marked") traced_kind = WorkloadKind::kMarked;
    if (option == "--trace-pictures") traced_kind = WorkloadKind::kPictures;
    if (option == "--trace-whole") traced_kind = WorkloadKind::kWhole;
    if (option == "--hunt") return Hunt(*value);
  }
  if (traced) {
    std::string text;
    const Outcome outcome = Simulate(DrawWorkload(*traced, traced_kind), &text);
    std::fputs(text.c_str(), stdout);
    std::fputs(fmt::format("trace {:016x} {}\n", outcome.trace, outcome.violation).c_str(), stdout);
    return outcome.violation.empty() ? 0 : 1;
  }
  if (count == 0) {
    std::fputs(
        "usage: sim --seeds N [--first S] | sim --pictures N [--first S] | sim --whole N [--first "
        "S] "
        "| sim --hunt N | sim --trace[-marked|-pictures|-whole] SEED\n",
        stderr);
    return 64;
  }
  return RunSeeds(first, count, alone);
}

}  // namespace
}  // namespace minisgl::sim

int main(int argc, char** argv) { return minisgl::sim::Main(argc, argv); }
