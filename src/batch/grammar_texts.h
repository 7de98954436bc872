// The grammars of the rows of an input: equal texts kept once, and each text compiled once to find
// out whether it is one.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "batch/row.h"
#include "minisgl/base/sha256.h"
#include "minisgl/grammar/grammar.h"
#include "minisgl/runtime/runtime.h"

namespace minisgl::batch {

// Shares equal texts as long as a row in work has them. Thread-safe.
class GrammarTexts {
 public:
  // The text equal to `text` that is in use, or `text` itself, which then is. REQUIRES a text.
  std::shared_ptr<const GrammarText> Share(std::shared_ptr<const GrammarText> text);

 private:
  std::mutex mutex_;
  std::map<Sha256::Digest, std::weak_ptr<const GrammarText>> texts_;
  size_t cleaned_size_ = 0;  // of texts_, after texts out of use were dropped
};

// Compiles the grammars of rows that are checked, not run. Used by one thread.
class GrammarCheck {
 public:
  // The error of a row whose prompts have a grammar that cannot be compiled. *warnings, if not
  // null, gets what compiling a new text noticed.
  std::optional<RowError> Check(const Row& row, const std::vector<Prompt>& prompts,
                                std::vector<std::string>* warnings);
  // The same of a row whose prompts are not built: of its own grammar.
  std::optional<RowError> CheckOwn(const Row& row);

 private:
  std::optional<RowError> CheckText(const Row& row, const std::shared_ptr<const GrammarText>& text,
                                    std::vector<std::string>* warnings);

  // The errors of the texts compiled so far, "" for none; at most kResultsMax.
  std::map<Sha256::Digest, std::string> errors_;
  std::shared_ptr<const GrammarText> last_;  // its error is last_error_
  std::string last_error_;
};

// The error of a row whose grammar cannot be compiled.
RowError InvalidGrammar(const Row& row, std::string message);

}  // namespace minisgl::batch
