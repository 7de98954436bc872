#include "runtime/grammar_compiler.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"

namespace minisgl::runtime {
namespace {

// Grammars that are kept for later requests. One in use stays with its requests.
constexpr size_t kKeptMax = 64;

// Equal for equal grammars and reasoning tags, different for others.
std::string KeyOf(const GrammarText& grammar, const ReasoningTags& reasoning) {
  std::string key;
  const auto add = [&key](std::string_view part) {
    key += std::to_string(part.size());
    key += ':';
    key += part;
  };
  key += static_cast<char>('a' + static_cast<int>(grammar.kind));
  add(grammar.text);
  for (const std::string& choice : grammar.choices) add(choice);
  key += reasoning.starts_inside ? '>' : '|';
  for (const std::string_view tag : {reasoning.open, reasoning.close, reasoning.answer}) add(tag);
  return key;
}

}  // namespace

GrammarCompiler::GrammarCompiler(const Tokenizer* tokenizer, int64_t vocab_size,
                                 std::function<void()> wake)
    : tokenizer_(tokenizer), vocab_size_(vocab_size), wake_(std::move(wake)) {}

GrammarCompiler::~GrammarCompiler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void GrammarCompiler::Ask(RequestId id, const Prompt& prompt) {
  Job job = {id, KeyOf(*prompt.grammar, prompt.reasoning), prompt.grammar, prompt.reasoning,
             prompt.stop_token_ids};
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
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    GrammarOutcome outcome = Run(job);
    lock.lock();
    finished_.push_back(std::move(outcome));
    lock.unlock();
    wake_();
    lock.lock();
  }
}

GrammarOutcome GrammarCompiler::Run(const Job& job) {
  GrammarOutcome outcome;
  outcome.id = job.id;
  try {
    const Compiled& compiled = Compile(job);
    outcome.status = compiled.status();
    if (!compiled.ok()) return outcome;
    outcome.constraint = std::make_shared<AnswerConstraint>(
        *compiled, Vocabulary(!job.reasoning.none()), job.stop_ids);
  } catch (const std::bad_alloc&) {
    outcome.status = Status(StatusCode::kOutOfMemory, "out of memory while compiling the grammar");
  } catch (const std::exception& error) {
    outcome.status = MakeStatus(StatusCode::kInternal, "the grammar cannot be compiled ({})",
                                Visible(error.what()));
  }
  return outcome;
}

const GrammarCompiler::Compiled& GrammarCompiler::Compile(const Job& job) {
  const auto found = by_key_.find(job.key);
  if (found != by_key_.end()) {
    kept_.splice(kept_.begin(), kept_, found->second);
    return kept_.front().compiled;
  }
  ThoughtForm thought;
  if (!job.reasoning.none()) {
    const GrammarVocabulary& vocabulary = *Vocabulary(/*spells_control=*/true);
    thought.open = vocabulary.BytesOfTag(job.reasoning.open);
    thought.close = vocabulary.BytesOfTag(job.reasoning.close);
    thought.answer = vocabulary.BytesOfTag(job.reasoning.answer);
    thought.starts_inside = job.reasoning.starts_inside;
  }
  Compiled compiled = CompileGrammar(*job.text, {}, thought);
  if (compiled.ok()) {
    for (const std::string& warning : (*compiled)->warnings()) Log(LogLevel::kWarning, warning);
  }
  kept_.push_front({job.key, std::move(compiled)});
  by_key_[job.key] = kept_.begin();
  if (kept_.size() > kKeptMax) {
    by_key_.erase(kept_.back().key);
    kept_.pop_back();
  }
  const std::lock_guard lock(mutex_);
  ++num_compiled_;
  return kept_.front().compiled;
}

const std::shared_ptr<const GrammarVocabulary>& GrammarCompiler::Vocabulary(bool spells_control) {
  std::shared_ptr<const GrammarVocabulary>& vocabulary = vocabularies_[spells_control ? 1 : 0];
  if (vocabulary == nullptr) {
    vocabulary = std::make_shared<GrammarVocabulary>(tokenizer_, vocab_size_, spells_control);
  }
  return vocabulary;
}

}  // namespace minisgl::runtime
