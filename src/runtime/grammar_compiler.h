// Compiles the grammars of requests on a thread of its own.
//
// Requests with the same grammar, reasoning tags included, share the compiled one and its masks, as
// long as one of them has it. Of those that none has any more, the ones that were used last are
// kept for later requests, within bounds of number and memory. A request whose grammar is compiled
// does not wait for those of others. Called by the runtime's thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "minisgl/base/sha256.h"
#include "runtime/answer_constraint.h"
#include "runtime/grammar_source.h"

namespace minisgl::runtime {

class GrammarCompiler final : public GrammarSource {
 public:
  // `tokenizer` outlives it; null: every grammar is refused. `wake` is called on the compiler's
  // thread when outcomes are there.
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
  };
  // A grammar that was compiled: where it is, or why it was refused.
  struct Known {
    std::weak_ptr<const CompiledGrammar> grammar;
    Status status;
    bool exists() const { return !status.ok() || !grammar.expired(); }
  };

  void Work();
  // Takes out the first job that needs no compiling, or else the first. REQUIRES mutex_.
  Job TakeJob();
  GrammarOutcome Run(const Job& job);
  Result<Grammar> Find(const Job& job);
  Result<Grammar> Compile(const Job& job) const;
  // Makes it the last one to be dropped of those that are kept.
  void Keep(const Grammar& grammar);
  void DropUnused();
  const std::shared_ptr<const GrammarVocabulary>& Vocabulary(bool spells_control) const;

  const Tokenizer* const tokenizer_;
  const int64_t vocab_size_;
  const std::function<void()> wake_;
  MaskMaker masks_;  // of the constraints made here

  // Of the compiler's thread.
  std::map<Sha256::Digest, Known> known_;
  size_t cleaned_size_ = 0;  // of known_, after DropUnused
  std::list<Grammar> kept_;  // the one that was used last comes first
  // [spells_control], made when needed
  mutable std::shared_ptr<const GrammarVocabulary> vocabularies_[2];

  // Of the caller's thread: the last grammar that was asked for, and its key.
  std::shared_ptr<const GrammarText> last_text_;
  ReasoningTags last_reasoning_;
  Sha256::Digest last_key_ = {};

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<GrammarOutcome> finished_;
  int64_t num_compiled_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // begins with the first job
};

}  // namespace minisgl::runtime
