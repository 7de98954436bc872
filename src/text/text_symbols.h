// Symbols of a vocabulary that are text wherever they stand.
#pragma once

#include <string_view>

namespace minisgl::text {

// True for the spelling of a symbol that no template and no reader of answers can take for a mark:
// a word, or a tag of HTML that marks up text (`<table>`, `</h1>`, `<br/>`). Such a symbol, if it
// is not special, is found in the content of messages as the reference finds it. Other spellings
// (`<think>`, `<tool_call>`, `[INST]`, `<|user|>`, `USER:`) may be marks, and stay text there.
bool IsTextSymbol(std::string_view text);

}  // namespace minisgl::text
