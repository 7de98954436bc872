// A runtime under constant load: requests of every kind at once, most of them waiting for pages of
// a small pool. Some are aborted, time out or are refused, and some are turns of sessions. After
// each round every request has ended exactly once, and no page and no byte is lost.
//
// $MINISGL_SOAK sets the number of requests for each kind of runtime, and prints each round.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "faults/faulty_program.h"
#include "long_form.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/tokenizer.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::faults {
namespace {

constexpr int64_t kShortRequests = 1'600;
constexpr int64_t kLongRequests = 100'000;
constexpr int kRounds = 16;
constexpr std::chrono::seconds kPatience(240);  // after which a runtime counts as hung
constexpr size_t kAtOnce = 24;
constexpr int32_t kMaxSeqLen = 64;
constexpr TokenId kFirstTextId = 3, kTextIds = 100;  // no control tokens, within the vocabulary
constexpr int64_t kHeapNoise = 64 << 10;     // the contents of the cache differ from round to round
constexpr int64_t kResidentNoiseKib = 2048;  // kept by the C library

int64_t NumRequests() {
  const char* wanted = std::getenv("MINISGL_SOAK");
  const int64_t count = wanted != nullptr ? std::strtoll(wanted, nullptr, 10) : 0;
  if (count > 0) return count;
  return ShortOrLong(kShortRequests, kLongRequests);
}

int64_t ResidentKib() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

struct SoakCase {
  friend void PrintTo(const SoakCase& soak, std::ostream* out) { *out << soak.name; }
  const char* name;
  const char* model;  // of tests/golden/models
  int32_t page_size;
  int32_t num_pages;  // for two or three requests
  int32_t max_drafts;
  StepPolicy step;
};

template <typename T>
T Need(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(result).value();
}

std::unique_ptr<Runtime> StartRuntime(const std::string& model_dir, const Tokenizer* tokenizer,
                                      const SoakCase& soak) {
  const ModelConfig config = Need(LoadModelConfig(model_dir));
  const ModelEngineOptions engine_options = {.max_running_requests = 8,
                                             .max_prefill_tokens = 64,
                                             .max_step_drafts = 16,
                                             .max_seq_len = kMaxSeqLen,
                                             .page_size = soak.page_size,
                                             .num_pages = soak.num_pages};
  const MemoryPlan plan = Need(PlanMemory(config, engine_options));
  const auto checkpoint = Need(Checkpoint::Open(model_dir));
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 64;
  options.scheduler.step = soak.step;
  options.scheduler.admission = AdmissionPolicy::kOptimistic;
  options.scheduler.queue = QueuePolicy::kPriority;
  options.scheduler.max_drafts = soak.max_drafts;
  if (soak.max_drafts > 0) options.scheduler.drafter = MakeNgramDrafter();
  return Need(
      Runtime::Create(Need(MakeModelEngine(config, *checkpoint, plan, Need(MakeCpuOps({2, ""})))),
                      tokenizer, options));
}

// Submits requests, each a function of its number, and counts how they end.
class Crowd {
 public:
  explicit Crowd(Runtime* runtime) : runtime_(runtime) {}

  // Submits so many more requests and waits for the end of the last.
  void Answer(int64_t count) {
    for (const int64_t last = next_ + count; next_ < last || !open_.empty();) {
      while (next_ < last && open_.size() < kAtOnce) Submit();
      const auto event = queue_.Pop(kPatience);
      ASSERT_TRUE(event) << open_.size() << " requests have no answer for some minutes";
      Take(*event);
      if (next_ < last && ++events_ % 16 == 0) LookAtPool();
    }
    for (Conversation& conversation : conversations_) Close(&conversation);
  }

  const std::map<FinishReason, int64_t>& ends() const { return ends_; }
  // Average share of the pool in use while requests were waiting.
  double share_used() const { return samples_ > 0 ? share_sum_ / samples_ : 0; }

 private:
  struct Conversation {
    SessionId session = 0;
    std::vector<TokenId> ids;
  };

  std::vector<TokenId> Ids(std::mt19937_64* rng, uint64_t count) const {
    std::vector<TokenId> ids;
    while (ids.size() < count) {
      ids.push_back(kFirstTextId + static_cast<TokenId>((*rng)() % kTextIds));
    }
    return ids;
  }

  // One of a few prefixes, so that prompts share pages and parts of pages.
  std::vector<TokenId> Stem(uint64_t number) const {
    constexpr std::array<uint64_t, 6> kLengths = {1, 7, 8, 9, 16, 24};
    std::mt19937_64 rng(number % kLengths.size());
    return Ids(&rng, kLengths[number % kLengths.size()]);
  }

  void Close(Conversation* conversation) {
    if (conversation->session != 0) runtime_->CloseSession(conversation->session);
    *conversation = {};
  }

  // A turn of one of four conversations, each of which ends when it becomes long.
  void MakeTurn(std::mt19937_64* rng, Prompt* prompt) {
    Conversation& conversation = conversations_[(*rng)() % conversations_.size()];
    if (conversation.ids.size() > kMaxSeqLen / 2) Close(&conversation);
    if (conversation.session == 0) conversation = {runtime_->OpenSession(), prompt->ids};
    for (const TokenId id : Ids(rng, 1 + (*rng)() % 6)) conversation.ids.push_back(id);
    prompt->ids = conversation.ids;
    prompt->session = conversation.session;
    prompt->priority = kChatPriority;
  }

  void Submit() {
    const auto number = static_cast<uint64_t>(next_++);
    std::mt19937_64 rng(number);
    Prompt prompt;
    prompt.ids = Stem(rng());
    for (const TokenId id : Ids(&rng, rng() % 12)) prompt.ids.push_back(id);
    prompt.max_tokens = static_cast<int64_t>(1 + rng() % 16);
    if (rng() % 8 == 0) prompt.sampling = {.temperature = 1, .top_k = 20, .seed = number};
    if (rng() % 8 == 0) prompt.sampling.num_logprobs = 2;
    if (rng() % 8 == 0) prompt.stop = {"e", "the fox"};
    if (rng() % 8 == 0) prompt.stop_token_ids = Ids(&rng, 8);
    if (rng() % 8 == 0) MakeTurn(&rng, &prompt);
    if (rng() % 40 == 0) prompt.timeout = std::chrono::microseconds(rng() % 2000);
    if (rng() % 50 == 0) prompt.ids = Ids(&rng, kMaxSeqLen + 1);
    const RequestId id = runtime_->Submit(std::move(prompt), &queue_, number);
    // Aborted at once, after its first tokens, or never.
    const uint64_t fate = rng() % 20;
    if (fate == 0) runtime_->Abort(id);
    EXPECT_TRUE(open_.emplace(number, Open{id, fate == 1}).second);
  }

  void Take(const Event& event) {
    const auto found = open_.find(event.tag);
    ASSERT_NE(found, open_.end()) << "an event of a request that has ended";
    if (event.kind == Event::Kind::kTokens) {
      if (found->second.is_to_be_aborted) runtime_->Abort(found->second.id);
      return;
    }
    if (event.finish_reason == FinishReason::kError) {
      EXPECT_EQ(event.error_code, "length_exceeded") << event.error_message;
    }
    ++ends_[event.finish_reason];
    open_.erase(found);
  }

  void LookAtPool() {
    const SchedulerStats stats = runtime_->Stats().scheduler;
    if (stats.waiting == 0) return;
    share_sum_ +=
        1 - static_cast<double>(stats.pages_free) / static_cast<double>(stats.pages_total);
    samples_ += 1;
  }

  struct Open {
    RequestId id = 0;
    bool is_to_be_aborted = false;
  };
  Runtime* runtime_;
  EventQueue queue_;
  int64_t next_ = 0;
  int64_t events_ = 0;
  std::map<uint64_t, Open> open_;
  std::array<Conversation, 4> conversations_;
  std::map<FinishReason, int64_t> ends_;
  double share_sum_ = 0, samples_ = 0;
};

// Nothing waits, runs or holds a page: pages that are not free are in the cache, unreferenced.
bool IsAtRest(const SchedulerStats& stats) {
  return stats.waiting == 0 && stats.running == 0 && stats.sessions == 0 &&
         stats.pages_locked == 0 && stats.pages_free + stats.pages_cached == stats.pages_total;
}

void ExpectRest(const Runtime& runtime) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!IsAtRest(runtime.Stats().scheduler) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const SchedulerStats stats = runtime.Stats().scheduler;
  EXPECT_TRUE(IsAtRest(stats)) << stats.waiting << " waiting, " << stats.running << " running, "
                               << stats.sessions << " sessions, " << stats.pages_free << " + "
                               << stats.pages_cached << " of " << stats.pages_total
                               << " pages, locked " << stats.pages_locked;
  EXPECT_EQ(stats.submitted, stats.finished + stats.failed + stats.aborted);
}

class SoakTest : public testing::TestWithParam<SoakCase> {};

TEST_P(SoakTest, MemoryAndPagesStayAsTheyAre) {
  const Folder folder;
  WriteTinyModel(folder, /*with_tokenizer_json=*/false);
  for (const char* name : {"config.json", "model.safetensors"}) {
    folder.Copy(
        std::string(MINISGL_SOURCE_DIR "/tests/golden/models/") + GetParam().model + "/" + name,
        name);
  }
  const auto tokenizer = Need(Tokenizer::Load(folder.path()));
  const auto runtime = StartRuntime(folder.path(), tokenizer.get(), GetParam());
  Crowd crowd(runtime.get());
  const int64_t count = NumRequests();
  std::vector<int64_t> heap, resident;
  for (int round = 0; round < kRounds; ++round) {
    crowd.Answer(count / kRounds);
    if (HasFatalFailure()) return;
    ExpectRest(*runtime);
    heap.push_back(BytesOut());
    resident.push_back(ResidentKib());
    if (std::getenv("MINISGL_SOAK") != nullptr) {
      std::printf("round %2d: heap %ld bytes, resident %ld KiB\n", round,
                  static_cast<long>(heap.back()), static_cast<long>(resident.back()));
      std::fflush(stdout);
    }
  }
  const SchedulerStats stats = runtime->Stats().scheduler;
  int64_t ended = 0;
  for (const auto& [reason, times] : crowd.ends()) ended += times;
  EXPECT_EQ(ended, count / kRounds * kRounds);
  for (const FinishReason reason :
       {FinishReason::kStop, FinishReason::kLength, FinishReason::kAborted, FinishReason::kTimeout,
        FinishReason::kError}) {
    EXPECT_GT(crowd.ends().count(reason), 0u) << FinishReasonName(reason);
  }
  EXPECT_GT(crowd.share_used(), 0.9);
  EXPECT_EQ(stats.pages_peak, stats.pages_total);
  EXPECT_GT(stats.evicted_pages, count / 4);
  EXPECT_GT(stats.cached_tokens, count);
  EXPECT_GT(stats.preemptions, 0);
  RecordProperty("preemptions", static_cast<int>(stats.preemptions));
  RecordProperty("percent_of_pool", static_cast<int>(crowd.share_used() * 100));
  // Compares the second half with the end of the first, by which one-time buffers are filled.
  const auto half = static_cast<ptrdiff_t>(heap.size() / 2);
  EXPECT_LT(heap.back(), *std::max_element(heap.begin(), heap.begin() + half) + kHeapNoise);
#if !defined(__SANITIZE_ADDRESS__)  // it delays the reuse of freed memory
  EXPECT_LT(resident.back(),
            *std::max_element(resident.begin(), resident.begin() + half) + kResidentNoiseKib);
#endif
}

INSTANTIATE_TEST_SUITE_P(
    All, SoakTest,
    testing::Values(SoakCase{"Mixed", "qwen2", 4, 24, 0, StepPolicy::kMixed},
                    SoakCase{"Drafts", "qwen2", 8, 12, 3, StepPolicy::kPrefillFirst},
                    SoakCase{"Windows", "gemma3_text", 4, 24, 0, StepPolicy::kMixed}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace minisgl::faults
