// Compiles the grammars of requests on two threads of its own.
//
// Requests with the same grammar, reasoning tags included, share the compiled one and its masks, as
// long as one of them has it. Of those that none has any more, the ones that were used last are
// kept for later requests, within bounds of number and memory.
//
// A request whose grammar is compiled does not wait for those of others. A grammar is tried with
// little work first; one that takes more is put back, and the first thread takes none of those. So
// grammars that take long hold up each other alone. Called by the runtime's thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/base/sha256.h"
#include "runtime/answer_constraint.h"
#include "runtime/grammar_source.h"
#include "runtime/token_limits.h"

namespace minisgl::runtime {

class GrammarCompiler final : public GrammarSource {
 public:
  // `tokenizer` outlives it; null: every grammar is refused. `wake` is called on the compiler's
  // threads when outcomes are there.
  GrammarCompiler(const Tokenizer* tokenizer, int64_t vocab_size, std::function<void()> wake);
  ~GrammarCompiler() override;

  void Ask(RequestId id, const Prompt& prompt) override;
  void Forget(RequestId id) override;
  std::vector<GrammarOutcome> TakeFinished() override;
  std::vector<RequestId> TakeReadyMasks() override { return masks_.TakeReady(); }

  int64_t num_late_masks() const { return masks_.num_added(); }
  int64_t num_compiled() const;  // so far, refused ones included; again if it was not kept

 private:
  using Grammar = std::shared_ptr<const CompiledGrammar>;
  struct Job {
    RequestId id = 0;
    Sha256::Digest key;  // of the grammar and the tags
    std::shared_ptr<const GrammarText> text;
    ReasoningTags reasoning;
    std::vector<TokenId> stop_ids;
    int64_t thought_budget = -1;
    std::string thought_message;
    std::shared_ptr<const TokenLimits> limits;
    bool is_heavy = false;  // takes more than little work
  };
  using Jobs = std::deque<Job>;
  // A grammar that was compiled: where it is, or why it was refused.
  struct Known {
    std::weak_ptr<const CompiledGrammar> grammar;
    Status status;
  };

  void Work(bool takes_heavy);
  // The job to do next: one that needs no compiling, or else the first one, heavy ones first if
  // they are taken. Those that wait for the other thread's are left out. REQUIRES mutex_.
  Jobs::iterator NextJob(bool takes_heavy);
  // What is known of the grammar of a job: it, or its error. Nothing if it must be compiled.
  // REQUIRES mutex_.
  std::optional<Result<Grammar>> FindKnown(const Job& job);
  // Nothing if it is heavier than was thought.
  std::optional<Result<Grammar>> Compile(const Job& job) const;
  GrammarOutcome Outcome(const Job& job, const Result<Grammar>& grammar) const;
  std::shared_ptr<TokenConstraint> Constraint(const Job& job, const Grammar& grammar) const;
  void Remember(const Job& job, const Result<Grammar>& grammar);  // REQUIRES mutex_
  // Makes it the last one to be dropped of those that are kept. REQUIRES mutex_.
  void Keep(const Grammar& grammar);
  // Drops kept grammars that are too large together. REQUIRES that mutex_ is not held.
  void DropLarge();
  const std::shared_ptr<const GrammarVocabulary>& Vocabulary(bool spells_control) const;

  const Tokenizer* const tokenizer_;
  const int64_t vocab_size_;
  const std::function<void()> wake_;
  const std::shared_ptr<GrammarMemory> memory_;  // of all grammars made here
  mutable MaskMaker masks_;                      // of the constraints made here

  mutable std::mutex vocabulary_mutex_;
  // [spells_control], made when needed
  mutable std::shared_ptr<const GrammarVocabulary> vocabularies_[2];

  // For the caller's thread alone: the last grammar that was asked for, and its key.
  std::shared_ptr<const GrammarText> last_text_;
  ReasoningTags last_reasoning_;
  Sha256::Digest last_key_ = {};

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Jobs jobs_;
  std::set<Sha256::Digest> compiling_;  // keys of the jobs under way
  std::map<Sha256::Digest, Known> known_;
  size_t cleaned_size_ = 0;       // of known_, after it was cleaned
  std::list<Grammar> kept_;       // the one that was used last comes first
  std::vector<Grammar> dropped_;  // not kept any more; to be deleted without the lock
  std::vector<GrammarOutcome> finished_;
  int64_t num_compiled_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // begin with the first job
};

}  // namespace minisgl::runtime
