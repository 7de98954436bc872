// llama.cpp's grammar notation, GBNF.
//
//   root  ::= "yes" | list        # the start rule
//   list  ::= "[" item ("," item){0,9} "]"
//   item  ::= [^\n\]\u00e9-\u00ff]+ | .
//
// Literals and classes take the escapes \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH. A rule ends
// with its line, except inside parentheses, after `::=` and after `|`. Left recursion works. Token
// terminals (<think>, <[1000]>) are refused.
#pragma once

#include <string_view>

#include "minisgl/base/status.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl::grammar {

// The rule `root`. kBadInput with line and column (in characters, from 1).
Result<Symbol> AddGbnf(std::string_view text, GrammarBuilder* builder);

}  // namespace minisgl::grammar
