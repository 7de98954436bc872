// Adds calls of tools to a grammar that is being built.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/grammar/call_grammar.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl::grammar {

// Arguments have at most one blank between their parts, as models write them.
inline constexpr uint32_t kCallBlanksMax = 1;

struct CallSymbols {
  Symbol calls;
  std::optional<Symbol> text;  // that may stand in place of calls
  // Text and then calls, or one of both; unset without `text`.
  std::optional<Symbol> text_or_calls;
};

// kBadInput names the function whose schema cannot be enforced, and why.
Result<CallSymbols> AddCalls(const CallGrammar& grammar, GrammarBuilder* builder,
                             std::vector<std::string>* warnings);

// Returns the symbol of the arguments of a function, each between the marks of kElements.
Result<Symbol> AddElements(const CallNotation& notation, const std::string& parameters,
                           GrammarBuilder* builder, std::vector<std::string>* warnings);

// Returns the symbol of the arguments of a function in the notation kMembers or kQuotedMembers.
Result<Symbol> AddMembers(const CallNotation& notation, const std::string& parameters,
                          GrammarBuilder* builder, std::vector<std::string>* warnings);

}  // namespace minisgl::grammar
