// The syntax tree of a GBNF grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/grammar/code_point_set.h"

namespace minisgl::grammar {

struct GbnfNode {
  enum Kind : uint8_t { kLiteral, kClass, kRule, kSequence, kChoice, kRepeat };
  Kind kind = kSequence;
  std::string literal;
  CodePointSet set;
  uint32_t rule = 0;
  uint32_t min = 0, max = 0;
  std::vector<uint32_t> parts;  // nodes; of smaller index
};

struct GbnfRule {
  std::string name;
  size_t used_at = 0;  // byte of the first use
  bool defined = false;
  uint32_t body = 0;
};

struct GbnfSyntax {
  std::vector<GbnfNode> nodes;
  std::vector<GbnfRule> rules;
  uint32_t root = 0;
};

// kBadInput as AddGbnf; every rule of the result is defined.
Result<GbnfSyntax> ParseGbnf(std::string_view text);

}  // namespace minisgl::grammar
