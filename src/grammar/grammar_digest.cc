#include "minisgl/grammar/grammar_digest.h"

#include <fmt/core.h>

namespace minisgl {
namespace {

void AddSized(std::string_view text, Sha256* hasher) {
  hasher->Add(fmt::format("{} ", text.size()));
  hasher->Add(text);
}

void AddCallGrammar(const CallGrammar& grammar, Sha256* hasher) {
  const CallNotation& notation = grammar.notation;
  hasher->Add(fmt::format("{} {} {} {} {} {} {} {} ", notation.quotes_name, notation.is_numbered,
                          notation.excludes_objects, notation.stands_alone,
                          static_cast<int>(notation.arguments), notation.in_header,
                          grammar.may_be_text, grammar.only_one));
  for (const std::string* text :
       {&notation.section_begin, &notation.section_end, &notation.separator, &notation.call_begin,
        &notation.name_end, &notation.call_end, &notation.key_begin, &notation.key_end,
        &notation.string_key_end, &notation.key_separator, &notation.value_end, &notation.text_end,
        &notation.not_first}) {
    AddSized(*text, hasher);
  }
  hasher->Add(fmt::format("{} ", notation.marks.size()));
  for (const std::string& mark : notation.marks) AddSized(mark, hasher);
  hasher->Add(fmt::format("{} {} ", grammar.functions.size(), grammar.text != nullptr));
  for (const CallFunction& function : grammar.functions) {
    AddSized(function.name, hasher);
    AddSized(function.parameters, hasher);
  }
  if (grammar.text == nullptr) return;
  const Sha256::Digest text = DigestOf(*grammar.text);
  hasher->Add({reinterpret_cast<const char*>(text.data()), text.size()});
}

}  // namespace

// The size stands before each part, so that no two lists of parts have the same bytes.
Sha256::Digest DigestOf(const GrammarText& grammar) {
  Sha256 hasher;
  hasher.Add(fmt::format("{} {} ", static_cast<int>(grammar.kind), grammar.text.size()));
  hasher.Add(grammar.text);
  for (const std::string& choice : grammar.choices) {
    hasher.Add(fmt::format("{} ", choice.size()));
    hasher.Add(choice);
  }
  if (grammar.calls != nullptr) AddCallGrammar(*grammar.calls, &hasher);
  return hasher.Finish();
}

}  // namespace minisgl
