// Latency of a chat beside other work, with a real model.
//
// bench_serving_latency MODEL_DIR [ROUNDS [SHARE]]
//
// Ratios of alternating runs on one machine:
// 1. Time to the first token of a chat turn beside 64 running and 64 waiting batch rows, compared
//    to a turn on an idle machine.
// 2. The longest time between two tokens of a chat answer while a prompt of 1,500 tokens is
//    prefilled, for mixed and prefill-first steps.
// 3. The rate of an answer beside 1, 16 and 256 rows that run, compared to its rate alone, and the
//    rate of the rows meanwhile: without a bound (share 0), and with the program's default; or this
//    alone for one SHARE (-1: the default).
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "load/model_loader.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/tokenizer.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBatchRows = 64;
constexpr int32_t kBudget = 512;

double Milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

template <typename T>
T OrDie(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fputs((result.status().message() + "\n").c_str(), stderr);
  std::exit(ExitCode(result.status().code()));
}

std::unique_ptr<Runtime> Start(const std::string& dir, StepPolicy step) {
  const ModelConfig config = OrDie(LoadModelConfig(dir));
  ModelEngineOptions options;
  options.max_running_requests = kBatchRows + 1;  // one is reserved for the chat
  options.max_prefill_tokens = kBudget;
  const MemoryPlan plan = OrDie(PlanMemory(config, options));
  auto checkpoint = OrDie(Checkpoint::Open(dir));
  auto engine = OrDie(MakeModelEngine(config, *checkpoint, plan, OrDie(MakeCpuOps({2, ""}))));
  RuntimeOptions runtime_options;
  runtime_options.scheduler.max_prefill_tokens = kBudget;
  runtime_options.scheduler.step = step;
  runtime_options.scheduler.admission = AdmissionPolicy::kOptimistic;
  runtime_options.scheduler.queue = QueuePolicy::kPriority;
  return OrDie(Runtime::Create(std::move(engine), nullptr, runtime_options));
}

Prompt MakePrompt(uint64_t number, int64_t length, int64_t max_tokens) {
  Prompt prompt;
  for (int64_t i = 0; i < length; ++i) {
    prompt.ids.push_back(static_cast<TokenId>(300 + (number * 977 + i * 31) % 1000));
  }
  prompt.max_tokens = max_tokens;  // nothing ends it earlier
  return prompt;
}

void DrainUntilDone(EventQueue* queue, int count) {
  while (count > 0) {
    const auto event = queue->Pop(std::chrono::milliseconds(1000));
    if (event && event->kind == Event::Kind::kDone) --count;
  }
}

// Returns the milliseconds from Submit to the first token.
double FirstToken(Runtime* runtime, Prompt prompt) {
  EventQueue queue;
  const auto begin = Clock::now();
  runtime->Submit(std::move(prompt), &queue);
  while (true) {
    const auto event = queue.Pop(std::chrono::milliseconds(1000));
    if (!event) continue;
    const double elapsed = Milliseconds(Clock::now() - begin);
    if (event->kind == Event::Kind::kTokens) {
      DrainUntilDone(&queue, 1);
      return elapsed;
    }
  }
}

std::vector<double> FirstTokens(const std::string& dir, bool beside_batch) {
  const auto runtime = Start(dir, StepPolicy::kMixed);
  const SessionId session = runtime->OpenSession();
  EventQueue batch;
  std::vector<RequestId> rows;
  if (beside_batch) {
    for (int i = 0; i < 2 * kBatchRows; ++i) {
      rows.push_back(runtime->Submit(MakePrompt(static_cast<uint64_t>(i), 100, 1200), &batch));
    }
    while (runtime->Stats().scheduler.generated_tokens < 10 * kBatchRows) {
      batch.Pop(std::chrono::milliseconds(1));
    }
  }
  std::vector<double> times;
  for (uint64_t turn = 0; turn < 10; ++turn) {
    Prompt prompt = MakePrompt(1000 + turn, 60, 4);
    prompt.session = session;
    prompt.priority = kChatPriority;
    times.push_back(FirstToken(runtime.get(), std::move(prompt)));
  }
  for (RequestId id : rows) runtime->Abort(id);
  DrainUntilDone(&batch, static_cast<int>(rows.size()));
  return times;
}

void BesideBatch(const std::string& dir, int rounds) {
  std::vector<double> alone, beside;
  for (int round = 0; round < rounds; ++round) {
    for (double time : FirstTokens(dir, false)) alone.push_back(time);
    for (double time : FirstTokens(dir, true)) beside.push_back(time);
  }
  fmt::print(
      "first token of a turn of 60 tokens: alone {:.1f} ms; beside {} rows that run and as many "
      "that wait {:.1f} ms ({:.1f} times)\n",
      Median(alone), kBatchRows, Median(beside), Median(beside) / Median(alone));
}

// The longest and the median gap between tokens of a chat answer beside a long prompt.
struct Gaps {
  double longest, median, long_prompt_first_token;
};
Gaps GapsBesideLongPrompt(const std::string& dir, StepPolicy step) {
  const auto runtime = Start(dir, step);
  EventQueue chat, batch;
  Prompt talk = MakePrompt(1, 60, 400);
  talk.priority = kChatPriority;
  talk.session = runtime->OpenSession();
  runtime->Submit(std::move(talk), &chat);
  std::vector<double> gaps;
  Clock::time_point last{}, asked{};
  double first_token = 0;
  for (bool done = false; !done;) {
    while (const auto event = batch.Pop(std::chrono::milliseconds(0))) {
      if (first_token == 0) first_token = Milliseconds(Clock::now() - asked);
    }
    const auto event = chat.Pop(std::chrono::milliseconds(5));
    if (!event) continue;
    done = event->kind == Event::Kind::kDone;
    const auto now = Clock::now();
    if (gaps.size() == 50) {
      asked = now;
      runtime->Submit(MakePrompt(2, 1500, 2), &batch);
    }
    if (last != Clock::time_point{} && !done) gaps.push_back(Milliseconds(now - last));
    last = now;
  }
  return {*std::max_element(gaps.begin() + 50, gaps.end()), Median(gaps), first_token};
}

void BesideLongPrompt(const std::string& dir, int rounds) {
  std::vector<double> longest[2], median[2], first_token[2];
  for (int round = 0; round < rounds; ++round) {
    for (int policy = 0; policy < 2; ++policy) {
      const Gaps gaps =
          GapsBesideLongPrompt(dir, policy == 0 ? StepPolicy::kMixed : StepPolicy::kPrefillFirst);
      longest[policy].push_back(gaps.longest);
      median[policy].push_back(gaps.median);
      first_token[policy].push_back(gaps.long_prompt_first_token);
    }
  }
  for (int policy = 0; policy < 2; ++policy) {
    fmt::print(
        "{}: between tokens of the chat {:.1f} ms, at worst beside a prompt of 1,500 tokens "
        "{:.1f} ms; that prompt's first token after {:.0f} ms\n",
        policy == 0 ? "mixed        " : "prefill-first", Median(median[policy]),
        Median(longest[policy]), Median(first_token[policy]));
  }
  fmt::print("worst gap, prefill-first against mixed: {:.1f} times\n",
             Median(longest[1]) / Median(longest[0]));
}

constexpr int64_t kChatAnswer = 64;

struct Turn {
  double first_token_ms = 0;
  double tokens_per_s = 0;  // after the first
  double batch_tokens_per_s = 0;
};

Turn RunTurn(Runtime* runtime, SessionId session, uint64_t number) {
  Prompt prompt = MakePrompt(number, 60, kChatAnswer);
  prompt.session = session;
  prompt.priority = kChatPriority;
  EventQueue queue;
  const auto begin = Clock::now();
  Clock::time_point first{}, last{};
  int64_t generated = 0;
  runtime->Submit(std::move(prompt), &queue);
  while (true) {
    const auto event = queue.Pop(std::chrono::milliseconds(1000));
    if (!event) continue;
    if (event->kind == Event::Kind::kDone) break;
    last = Clock::now();
    if (first != Clock::time_point{}) continue;
    first = last;
    generated = runtime->Stats().scheduler.generated_tokens;
  }
  const double seconds = Milliseconds(last - first) / 1000;
  const int64_t all = runtime->Stats().scheduler.generated_tokens - generated;
  return {Milliseconds(first - begin), static_cast<double>(kChatAnswer - 1) / seconds,
          static_cast<double>(all - (kChatAnswer - 1)) / seconds};
}

// Keeps `num_rows` answers running in `runtime` until it is destroyed.
class Crowd {
 public:
  Crowd(Runtime* runtime, int num_rows, int64_t max_tokens) : runtime_(runtime) {
    for (int i = 0; i < num_rows; ++i) {
      rows_.push_back(
          runtime->Submit(MakePrompt(static_cast<uint64_t>(i), 30, max_tokens), &queue_));
    }
    // Until each has some tokens.
    const int64_t wanted = runtime->Stats().scheduler.generated_tokens + 4 * num_rows;
    while (runtime->Stats().scheduler.generated_tokens < wanted) {
      queue_.Pop(std::chrono::milliseconds(1));
    }
  }
  ~Crowd() {
    for (const RequestId row : rows_) runtime_->Abort(row);
    for (size_t open = rows_.size(); open > 0;) {
      const auto event = queue_.Pop(std::chrono::milliseconds(1000));
      if (event && event->kind == Event::Kind::kDone) --open;
    }
  }

 private:
  Runtime* const runtime_;
  EventQueue queue_;
  std::vector<RequestId> rows_;
};

// `share`: EngineOptions::chat_share.
void BesideRows(const std::string& dir, double share, int rounds) {
  const ModelConfig config = OrDie(LoadModelConfig(dir));
  const std::unique_ptr<Checkpoint> checkpoint = OrDie(Checkpoint::Open(dir));
  load::EngineOptions options;
  options.chat_share = share;
  options.max_running_requests = 257;
  options.max_seq_len = 1600;
  const load::BareModel model = OrDie(load::LoadBareModel(config, *checkpoint, options));
  Runtime* const runtime = model.runtime.get();
  const SessionId session = runtime->OpenSession();
  uint64_t number = 1000;
  RunTurn(runtime, session, number++);
  for (const int num_rows : {1, 16, 256}) {
    std::vector<double> alone, first_alone, beside, first, batch;
    for (int round = 0; round < rounds; ++round) {
      RunTurn(runtime, session, number++);  // behind the last step of the rows of before
      const Turn quiet = RunTurn(runtime, session, number++);
      alone.push_back(quiet.tokens_per_s);
      first_alone.push_back(quiet.first_token_ms);
      const Crowd crowd(runtime, num_rows, 1500);
      const Turn turn = RunTurn(runtime, session, number++);
      beside.push_back(turn.tokens_per_s);
      first.push_back(turn.first_token_ms);
      batch.push_back(turn.batch_tokens_per_s);
    }
    const std::string name = share < 0 ? "default" : fmt::format("{:.2f}", share);
    fmt::print(
        "share {:7}  {:3} rows: chat {:6.1f} tokens/s ({:.2f} of {:.1f} alone), first token {:.0f} "
        "ms (alone {:.0f}); batch {:.1f} tokens/s\n",
        name, num_rows, Median(beside), Median(beside) / Median(alone), Median(alone),
        Median(first), Median(first_alone), Median(batch));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace minisgl

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: bench_serving_latency MODEL_DIR [ROUNDS [SHARE]]\n", stderr);
    return 64;
  }
  const int rounds = argc > 2 ? std::max(std::atoi(argv[2]), 1) : 5;
  if (argc > 3) {
    minisgl::BesideRows(argv[1], std::atof(argv[3]), rounds);
    return 0;
  }
  minisgl::BesideBatch(argv[1], rounds);
  minisgl::BesideLongPrompt(argv[1], rounds);
  for (const double share : {0.0, -1.0}) minisgl::BesideRows(argv[1], share, rounds);
  return 0;
}
