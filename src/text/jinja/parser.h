// Parses the tokens of a template to a syntax tree, by the grammar of Jinja.
#pragma once

#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace minisgl::text::jinja {

// Throws Error with its line.
Block Parse(std::vector<Token> tokens);

}  // namespace minisgl::text::jinja
