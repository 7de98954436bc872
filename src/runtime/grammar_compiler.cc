#include "runtime/grammar_compiler.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "minisgl/base/utf8.h"
#include "minisgl/grammar/grammar_digest.h"
#include "runtime/thought_budget.h"

namespace minisgl::runtime {
namespace {

// Bounds on kept grammars that no request has.
constexpr size_t kKeptMax = 64;
constexpr size_t kKeptBytesMax = size_t{256} << 20;
// Upper bound on all tables and masks, also those in use.
constexpr size_t kBytesMax = size_t{256} << 20;
// Upper bound on known grammars, refused ones included.
constexpr size_t kKnownMax = 10'000;
// Work of a grammar that is tried at once: about ten milliseconds, and most take one. Reading a
// text is not counted.
constexpr uint64_t kLittleWork = 100'000;
constexpr size_t kLittleTextBytes = 64 << 10;

bool IsLarge(const GrammarText& grammar) {
  size_t bytes = grammar.text.size();
  for (const std::string& choice : grammar.choices) bytes += choice.size();
  if (grammar.calls != nullptr) {
    for (const CallFunction& function : grammar.calls->functions) {
      bytes += function.parameters.size();
    }
  }
  return bytes > kLittleTextBytes;
}

// The tags are those of a fixed table, so that a separator is enough.
Sha256::Digest KeyOf(const GrammarText& grammar, const ReasoningTags& reasoning) {
  const Sha256::Digest digest = DigestOf(grammar);
  Sha256 hasher;
  hasher.Add({reinterpret_cast<const char*>(digest.data()), digest.size()});
  hasher.Add(fmt::format("{}\n{}\n{}\n{}\n{}", reasoning.starts_inside, reasoning.open,
                         reasoning.close, reasoning.answer, reasoning.wrap_open));
  return hasher.Finish();
}

ThoughtForm FormOf(const ThoughtMarks& marks, const ReasoningTags& reasoning) {
  ThoughtForm form;
  form.open = marks.tags().open;
  form.close = marks.tags().close;
  form.answer = marks.tags().answer;
  form.wrap = marks.tags().wrap_open;
  form.starts_inside = reasoning.starts_inside;
  if (!marks.tags().in_channels) return form;
  form.channels = {marks.BytesOfTag("<|start|>"),
                   marks.BytesOfTag("<|channel|>"),
                   marks.BytesOfTag("<|constrain|>"),
                   marks.BytesOfTag("<|message|>"),
                   marks.BytesOfTag("<|end|>"),
                   "assistant",
                   "final"};
  return form;
}

}  // namespace

GrammarCompiler::GrammarCompiler(const Tokenizer* tokenizer, int64_t vocab_size,
                                 std::function<void()> wake)
    : tokenizer_(tokenizer),
      vocab_size_(vocab_size),
      wake_(std::move(wake)),
      memory_(std::make_shared<GrammarMemory>(kBytesMax)),
      masks_(wake_) {}

GrammarCompiler::~GrammarCompiler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void GrammarCompiler::Ask(RequestId id, const Prompt& prompt) {
  if (prompt.grammar != last_text_ || prompt.reasoning != last_reasoning_) {
    last_key_ = KeyOf(*prompt.grammar, prompt.reasoning);
    last_text_ = prompt.grammar;
    last_reasoning_ = prompt.reasoning;
  }
  Job job = {id,
             last_key_,
             prompt.grammar,
             prompt.reasoning,
             prompt.stop_token_ids,
             prompt.thought_budget,
             prompt.thought_message,
             TokenLimits::Of(prompt, vocab_size_),
             IsLarge(*prompt.grammar)};
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    threads_.reserve(2);
    while (threads_.size() < 2) {
      const bool takes_heavy = !threads_.empty();
      threads_.emplace_back([this, takes_heavy] { Work(takes_heavy); });
    }
  }
  changed_.notify_all();
}

void GrammarCompiler::Forget(RequestId id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [id](const Job& job) { return job.id == id; });
}

std::vector<GrammarOutcome> GrammarCompiler::TakeFinished() {
  const std::lock_guard lock(mutex_);
  return std::exchange(finished_, {});
}

int64_t GrammarCompiler::num_compiled() const {
  const std::lock_guard lock(mutex_);
  return num_compiled_;
}

void GrammarCompiler::Work(bool takes_heavy) {
  std::unique_lock lock(mutex_);
  while (true) {
    Jobs::iterator place;
    changed_.wait(lock, [&] {
      place = NextJob(takes_heavy);
      return stopping_ || place != jobs_.end();
    });
    if (stopping_) return;
    Job job = std::move(*place);
    jobs_.erase(place);
    std::optional<Result<Grammar>> grammar = FindKnown(job);
    const bool is_new = !grammar.has_value();
    if (is_new) {
      compiling_.insert(job.key);
      lock.unlock();
      grammar = Compile(job);
      lock.lock();
      compiling_.erase(job.key);
      if (grammar.has_value()) {
        Remember(job, *grammar);
      } else {
        for (Job& other : jobs_) other.is_heavy = other.is_heavy || other.key == job.key;
        job.is_heavy = true;
        jobs_.push_back(std::move(job));
      }
      changed_.notify_all();  // jobs of the same grammar wait for it
      if (!grammar.has_value()) continue;
    }
    std::vector<Grammar> dropped = std::exchange(dropped_, {});
    lock.unlock();
    dropped.clear();
    GrammarOutcome outcome = Outcome(job, *grammar);
    if (is_new) DropLarge();
    lock.lock();
    finished_.push_back(std::move(outcome));
    lock.unlock();
    wake_();
    lock.lock();
  }
}

GrammarCompiler::Jobs::iterator GrammarCompiler::NextJob(bool takes_heavy) {
  Jobs::iterator light = jobs_.end(), heavy = jobs_.end();
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (FindKnown(*job).has_value()) return job;
    if (compiling_.contains(job->key)) continue;
    Jobs::iterator& first = job->is_heavy ? heavy : light;
    if (first == jobs_.end()) first = job;
  }
  return takes_heavy && heavy != jobs_.end() ? heavy : light;
}

std::optional<Result<GrammarCompiler::Grammar>> GrammarCompiler::FindKnown(const Job& job) {
  const auto known = known_.find(job.key);
  if (known == known_.end()) return std::nullopt;
  if (!known->second.status.ok()) return known->second.status;
  Grammar grammar = known->second.grammar.lock();
  if (grammar == nullptr) return std::nullopt;
  Keep(grammar);
  return grammar;
}

GrammarOutcome GrammarCompiler::Outcome(const Job& job, const Result<Grammar>& grammar) const {
  GrammarOutcome outcome;
  outcome.id = job.id;
  outcome.status = grammar.status();
  if (!grammar.ok()) return outcome;
  try {
    outcome.warnings = (*grammar)->warnings();
    outcome.constraint = Constraint(job, *grammar);
  } catch (const std::bad_alloc&) {
    outcome.status = Status(StatusCode::kOutOfMemory, "out of memory while compiling the grammar");
  }
  return outcome;
}

std::shared_ptr<TokenConstraint> GrammarCompiler::Constraint(const Job& job,
                                                             const Grammar& grammar) const {
  const bool has_thoughts = !job.reasoning.none();
  const bool names_control = job.text->kind == GrammarKind::kCalls;  // as marks of calls
  auto answer = std::make_shared<AnswerConstraint>(
      grammar, Vocabulary(has_thoughts || names_control), job.stop_ids, job.id, &masks_);
  if (job.thought_budget < 0 || !has_thoughts) return WithLimits(job.limits, std::move(answer));
  auto thoughts = std::make_shared<ThoughtBudget>(
      std::make_shared<const ThoughtMarks>(tokenizer_, job.reasoning), job.reasoning.starts_inside,
      job.thought_budget, job.thought_message, vocab_size_, std::move(answer));
  return WithLimits(job.limits, thoughts, thoughts.get());
}

std::optional<Result<GrammarCompiler::Grammar>> GrammarCompiler::Compile(const Job& job) const {
  try {
    ThoughtForm thought;
    if (!job.reasoning.none()) {
      thought = FormOf(ThoughtMarks(tokenizer_, job.reasoning), job.reasoning);
    }
    GrammarLimits limits;
    limits.memory = memory_;
    if (!job.is_heavy) return TryCompileGrammar(*job.text, kLittleWork, limits, thought);
    return CompileGrammar(*job.text, limits, thought);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "out of memory while compiling the grammar");
  } catch (const std::exception& error) {
    return MakeStatus(StatusCode::kInternal, "the grammar cannot be compiled ({})",
                      Visible(error.what()));
  }
}

void GrammarCompiler::Remember(const Job& job, const Result<Grammar>& grammar) {
  ++num_compiled_;
  // What was short of memory may be compiled another time.
  if (!grammar.ok() && grammar.status().code() != StatusCode::kBadInput) return;
  Known& known = known_[job.key];
  known.status = grammar.status();
  if (grammar.ok()) {
    known.grammar = *grammar;
    Keep(*grammar);
  }
  if (known_.size() < 2 * cleaned_size_ + kKeptMax) return;
  std::erase_if(known_, [](const auto& entry) {
    return entry.second.status.ok() && entry.second.grammar.expired();
  });
  if (known_.size() > kKnownMax) {
    std::erase_if(known_, [](const auto& entry) { return !entry.second.status.ok(); });
  }
  cleaned_size_ = known_.size();
}

void GrammarCompiler::Keep(const Grammar& grammar) {
  kept_.remove(grammar);
  kept_.push_front(grammar);
  if (kept_.size() <= kKeptMax) return;
  dropped_.push_back(std::move(kept_.back()));
  kept_.pop_back();
}

// The grammars are asked, and deleted, without the lock: they may be in use, or large.
void GrammarCompiler::DropLarge() {
  std::list<Grammar> kept;
  {
    const std::lock_guard lock(mutex_);
    kept = kept_;
  }
  size_t bytes = 0, count = 0;
  std::set<const CompiledGrammar*> dropped;
  for (const Grammar& grammar : kept) {
    bytes += grammar->memory_bytes();
    if (++count > 1 && bytes > kKeptBytesMax) dropped.insert(grammar.get());
  }
  if (dropped.empty()) return;
  const std::lock_guard lock(mutex_);
  kept_.remove_if([&](const Grammar& grammar) { return dropped.contains(grammar.get()); });
}

const std::shared_ptr<const GrammarVocabulary>& GrammarCompiler::Vocabulary(
    bool spells_control) const {
  const std::lock_guard lock(vocabulary_mutex_);
  std::shared_ptr<const GrammarVocabulary>& vocabulary = vocabularies_[spells_control ? 1 : 0];
  if (vocabulary == nullptr) {
    vocabulary = std::make_shared<GrammarVocabulary>(tokenizer_, vocab_size_, spells_control);
  }
  return vocabulary;
}

}  // namespace minisgl::runtime
