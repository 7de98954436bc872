// The rows of `minisgl grammar --file`: constraints, and texts that are judged by them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/grammar/grammar.h"
#include "minisgl/grammar/token_masks.h"
#include "minisgl/text/tokenizer.h"

namespace minisgl::cli {

struct GrammarRow {
  std::string id = "null";  // as JSON
  GrammarText grammar;
  std::vector<std::optional<std::string>> texts;  // nullopt: not Unicode
};

// Reads a line. On an error, *row has the id and the texts if they could be read. A text with a
// lone surrogate or ill-formed UTF-8 is sound, but matches nothing.
Status ParseGrammarRow(const std::string& line, GrammarRow* row);

// A model's vocabulary, with which masks are timed.
struct Vocabulary {
  explicit Vocabulary(const Tokenizer& tokenizer);
  std::vector<std::string> bytes;  // by id
  size_t bytes_max = 0;            // of a token
  TokenMasks masks;
};

// Compiles, checks the texts and formats the answer, a line. `read` is the result of
// ParseGrammarRow; `vocabulary` may be null. Sets *compiled.
std::string JudgeGrammarRow(const GrammarRow& row, const Status& read, const Vocabulary* vocabulary,
                            bool* compiled);

}  // namespace minisgl::cli
