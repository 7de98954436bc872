#include "runtime/grammar_compiler.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <utility>

#include "minisgl/base/utf8.h"
#include "minisgl/grammar/grammar_digest.h"

namespace minisgl::runtime {
namespace {

// Of grammars that no request has.
constexpr size_t kKeptMax = 64;
constexpr size_t kKeptBytesMax = size_t{256} << 20;
// Of all that were compiled, refused ones included.
constexpr size_t kKnownMax = 10'000;

// The tags are those of a fixed table, so that a separator is enough.
Sha256::Digest KeyOf(const GrammarText& grammar, const ReasoningTags& reasoning) {
  const Sha256::Digest digest = DigestOf(grammar);
  Sha256 hasher;
  hasher.Add({reinterpret_cast<const char*>(digest.data()), digest.size()});
  hasher.Add(fmt::format("{}\n{}\n{}\n{}", reasoning.starts_inside, reasoning.open, reasoning.close,
                         reasoning.answer));
  return hasher.Finish();
}

}  // namespace

GrammarCompiler::GrammarCompiler(const Tokenizer* tokenizer, int64_t vocab_size,
                                 std::function<void()> wake)
    : tokenizer_(tokenizer), vocab_size_(vocab_size), wake_(std::move(wake)), masks_(wake_) {}

GrammarCompiler::~GrammarCompiler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void GrammarCompiler::Ask(RequestId id, const Prompt& prompt) {
  if (prompt.grammar != last_text_ || prompt.reasoning != last_reasoning_) {
    last_key_ = KeyOf(*prompt.grammar, prompt.reasoning);
    last_text_ = prompt.grammar;
    last_reasoning_ = prompt.reasoning;
  }
  Job job = {id, last_key_, prompt.grammar, prompt.reasoning, prompt.stop_token_ids};
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
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

void GrammarCompiler::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const Job job = TakeJob();
    lock.unlock();
    GrammarOutcome outcome = Run(job);
    lock.lock();
    finished_.push_back(std::move(outcome));
    lock.unlock();
    wake_();
    lock.lock();
  }
}

GrammarCompiler::Job GrammarCompiler::TakeJob() {
  auto place = std::find_if(jobs_.begin(), jobs_.end(), [this](const Job& job) {
    const auto known = known_.find(job.key);
    return known != known_.end() && known->second.exists();
  });
  if (place == jobs_.end()) place = jobs_.begin();
  Job job = std::move(*place);
  jobs_.erase(place);
  return job;
}

GrammarOutcome GrammarCompiler::Run(const Job& job) {
  GrammarOutcome outcome;
  outcome.id = job.id;
  try {
    const Result<Grammar> grammar = Find(job);
    outcome.status = grammar.status();
    if (!grammar.ok()) return outcome;
    outcome.warnings = (*grammar)->warnings();
    outcome.constraint = std::make_shared<AnswerConstraint>(
        *grammar, Vocabulary(!job.reasoning.none()), job.stop_ids, job.id, &masks_);
  } catch (const std::bad_alloc&) {
    outcome.status = Status(StatusCode::kOutOfMemory, "out of memory while compiling the grammar");
  } catch (const std::exception& error) {
    outcome.status = MakeStatus(StatusCode::kInternal, "the grammar cannot be compiled ({})",
                                Visible(error.what()));
  }
  return outcome;
}

Result<GrammarCompiler::Grammar> GrammarCompiler::Find(const Job& job) {
  if (const auto known = known_.find(job.key); known != known_.end()) {
    if (!known->second.status.ok()) return known->second.status;
    if (Grammar grammar = known->second.grammar.lock()) {
      Keep(grammar);
      return grammar;
    }
  }
  Result<Grammar> compiled = Compile(job);
  {
    const std::lock_guard lock(mutex_);
    ++num_compiled_;
  }
  Known& known = known_[job.key];
  known.status = compiled.status();
  if (compiled.ok()) {
    known.grammar = *compiled;
    Keep(*compiled);
  }
  DropUnused();
  return compiled;
}

Result<GrammarCompiler::Grammar> GrammarCompiler::Compile(const Job& job) const {
  ThoughtForm thought;
  if (!job.reasoning.none()) {
    const GrammarVocabulary& vocabulary = *Vocabulary(/*spells_control=*/true);
    thought.open = vocabulary.BytesOfTag(job.reasoning.open);
    thought.close = vocabulary.BytesOfTag(job.reasoning.close);
    thought.answer = vocabulary.BytesOfTag(job.reasoning.answer);
    thought.starts_inside = job.reasoning.starts_inside;
  }
  return CompileGrammar(*job.text, {}, thought);
}

void GrammarCompiler::Keep(const Grammar& grammar) {
  kept_.remove(grammar);
  kept_.push_front(grammar);
  if (kept_.size() > kKeptMax) kept_.pop_back();
}

// Forgets grammars that are not kept, and drops those that are too large together.
void GrammarCompiler::DropUnused() {
  size_t bytes = 0, count = 0;
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    bytes += (*kept)->memory_bytes();
    const bool drops = ++count > 1 && bytes > kKeptBytesMax;
    kept = drops ? kept_.erase(kept) : std::next(kept);
  }
  if (known_.size() < 2 * cleaned_size_ + kKeptMax) return;
  std::erase_if(known_, [](const auto& entry) { return !entry.second.exists(); });
  if (known_.size() > kKnownMax) {
    std::erase_if(known_, [](const auto& entry) { return !entry.second.status.ok(); });
  }
  cleaned_size_ = known_.size();
}

const std::shared_ptr<const GrammarVocabulary>& GrammarCompiler::Vocabulary(
    bool spells_control) const {
  std::shared_ptr<const GrammarVocabulary>& vocabulary = vocabularies_[spells_control ? 1 : 0];
  if (vocabulary == nullptr) {
    vocabulary = std::make_shared<GrammarVocabulary>(tokenizer_, vocab_size_, spells_control);
  }
  return vocabulary;
}

}  // namespace minisgl::runtime
