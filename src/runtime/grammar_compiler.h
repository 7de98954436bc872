// Compiles the grammars of requests on a thread of its own, each distinct one once.
//
// Requests with the same grammar, reasoning tags included, share the compiled one and its masks.
// Those that no request uses any more are kept for the next ones, a few of them. Called by the
// runtime's thread.
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

  int64_t num_compiled() const;  // so far, refused ones included

 private:
  using Compiled = Result<std::shared_ptr<const CompiledGrammar>>;
  struct Job {
    RequestId id = 0;
    std::string key;
    std::shared_ptr<const GrammarText> text;
    ReasoningTags reasoning;
    std::vector<TokenId> stop_ids;
  };
  struct Kept {
    std::string key;
    Compiled compiled;
  };

  void Work();
  GrammarOutcome Run(const Job& job);
  const Compiled& Compile(const Job& job);
  const std::shared_ptr<const GrammarVocabulary>& Vocabulary(bool spells_control);

  const Tokenizer* const tokenizer_;
  const int64_t vocab_size_;
  const std::function<void()> wake_;

  // Of the compiler's thread.
  std::list<Kept> kept_;  // the one that was used last comes first
  std::map<std::string, std::list<Kept>::iterator> by_key_;
  std::shared_ptr<const GrammarVocabulary> vocabularies_[2];  // [spells_control], made when needed

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<GrammarOutcome> finished_;
  int64_t num_compiled_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // begins with the first job
};

}  // namespace minisgl::runtime
