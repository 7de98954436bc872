// From GBNF's syntax tree to rules.
//
// A regular part that is neither recursive nor large becomes one terminal: an automaton then
// matches a rule `string`, and not items one by one.
#include "grammar/gbnf.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "grammar/gbnf_syntax.h"

namespace minisgl::grammar {

namespace {

// Bounds of a rule, with the rules that it uses, to become part of one expression.
constexpr uint32_t kExpressionDepthMax = 40;
constexpr uint32_t kExpressionSizeMax = 5000;

class GbnfCompiler {
 public:
  GbnfCompiler(const GbnfSyntax& syntax, GrammarBuilder* builder)
      : syntax_(syntax), builder_(*builder) {}

  Result<Symbol> Compile() {
    FindRegular();
    expressions_.resize(syntax_.nodes.size());
    symbols_.resize(syntax_.rules.size());
    for (uint32_t rule = 0; rule < syntax_.rules.size(); ++rule) {
      if (!IsRegular(syntax_.rules[rule].body)) {
        symbols_[rule] = builder_.Declare(syntax_.rules[rule].name);
      }
    }
    for (const uint32_t rule : order_) {
      const uint32_t body = syntax_.rules[rule].body;
      if (IsRegular(body)) {
        symbols_[rule] = builder_.Terminal(ExpressionOf(body));
      } else {
        Define(symbols_[rule], body);
      }
      MINISGL_RETURN_IF_ERROR(builder_.status());
    }
    return symbols_[syntax_.root];
  }

 private:
  struct Shape {
    bool regular = false;
    uint32_t depth = 0;
    uint32_t size = 0;
  };

  bool IsRegular(uint32_t node) const { return shapes_[node].regular; }

  // Rules in an order in which those that a rule uses stand before it, except in cycles; without
  // recursion, chains of rules may be long.
  void FindRegular() {
    const size_t num_rules = syntax_.rules.size();
    shapes_.resize(syntax_.nodes.size());
    used_.resize(num_rules);
    CollectUses();
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> progress(num_rules, kNew);
    std::vector<std::pair<uint32_t, size_t>> path;  // rule, next use
    for (uint32_t first = 0; first < num_rules; ++first) {
      if (progress[first] != kNew) continue;
      progress[first] = kOpen;
      path.push_back({first, 0});
      while (!path.empty()) {
        auto& [rule, next] = path.back();
        if (next < used_[rule].size()) {
          const uint32_t use = used_[rule][next++];
          if (progress[use] == kNew) {
            progress[use] = kOpen;
            path.push_back({use, 0});
          }
          continue;
        }
        // A rule used while it is still open is not done: it has no shape, so its user is not
        // regular.
        ComputeShapes(rule);
        progress[rule] = kDone;
        order_.push_back(rule);
        path.pop_back();
      }
    }
  }

  // The nodes of a rule's body are consecutive: those behind the previous body, up to its own.
  void CollectUses() {
    std::vector<uint32_t> bodies;
    for (const GbnfRule& rule : syntax_.rules) bodies.push_back(rule.body);
    std::sort(bodies.begin(), bodies.end());
    first_node_.resize(syntax_.rules.size());
    for (uint32_t rule = 0; rule < syntax_.rules.size(); ++rule) {
      const uint32_t body = syntax_.rules[rule].body;
      const auto own = std::lower_bound(bodies.begin(), bodies.end(), body);
      first_node_[rule] = own == bodies.begin() ? 0 : *std::prev(own) + 1;
      for (uint32_t node = first_node_[rule]; node <= body; ++node) {
        if (syntax_.nodes[node].kind == GbnfNode::kRule) {
          used_[rule].push_back(syntax_.nodes[node].rule);
        }
      }
    }
  }

  void ComputeShapes(uint32_t rule) {
    for (uint32_t index = first_node_[rule]; index <= syntax_.rules[rule].body; ++index) {
      const GbnfNode& node = syntax_.nodes[index];
      Shape shape{true, 1, static_cast<uint32_t>(node.literal.size()) + 1};
      if (node.kind == GbnfNode::kRule) shape = shapes_[syntax_.rules[node.rule].body];
      for (const uint32_t part : node.parts) {
        const Shape& below = shapes_[part];
        shape.regular = shape.regular && below.regular;
        shape.depth = std::max(shape.depth, below.depth + 1);
        shape.size += std::min(below.size, kExpressionSizeMax);
        shape.size = std::min(shape.size, kExpressionSizeMax + 1);
      }
      const bool leaf = node.kind == GbnfNode::kLiteral || node.kind == GbnfNode::kClass;
      shape.regular = shape.regular && shape.depth <= kExpressionDepthMax &&
                      (leaf || shape.size <= kExpressionSizeMax);
      shapes_[index] = shape;
    }
  }

  // REQUIRES IsRegular(index). Recurses at most kExpressionDepthMax deep.
  ExpressionId ExpressionOf(uint32_t index) {
    if (expressions_[index]) return *expressions_[index];
    ExpressionSet& set = builder_.expressions();
    const GbnfNode& node = syntax_.nodes[index];
    std::vector<ExpressionId> parts;
    for (const uint32_t part : node.parts) parts.push_back(ExpressionOf(part));
    ExpressionId result = set.Nothing();
    switch (node.kind) {
      case GbnfNode::kLiteral:
        result = set.Literal(node.literal);
        break;
      case GbnfNode::kClass:
        result = set.CodePoints(node.set);
        break;
      case GbnfNode::kRule:
        result = ExpressionOf(syntax_.rules[node.rule].body);
        break;
      case GbnfNode::kSequence:
        result = set.Concat(parts);
        break;
      case GbnfNode::kChoice:
        result = set.Or(parts);
        break;
      case GbnfNode::kRepeat:
        result = set.Repeat(parts[0], node.min, node.max);
        break;
    }
    expressions_[index] = result;
    return result;
  }

  void Define(Symbol rule, uint32_t body) {
    const GbnfNode& node = syntax_.nodes[body];
    if (node.kind != GbnfNode::kChoice) {
      builder_.AddAlternative(rule, SequenceOf(body));
      return;
    }
    // Regular alternatives are one terminal together.
    std::vector<ExpressionId> regular;
    for (const uint32_t part : node.parts) {
      if (IsRegular(part)) {
        regular.push_back(ExpressionOf(part));
      } else {
        builder_.AddAlternative(rule, SequenceOf(part));
      }
    }
    if (!regular.empty()) {
      builder_.AddAlternative(rule, {builder_.Terminal(builder_.expressions().Or(regular))});
    }
  }

  // Runs of regular parts are one terminal each.
  std::vector<Symbol> SequenceOf(uint32_t index) {
    const GbnfNode& node = syntax_.nodes[index];
    if (IsRegular(index) || node.kind != GbnfNode::kSequence) return {SymbolOf(index)};
    std::vector<Symbol> symbols;
    std::vector<ExpressionId> run;
    const auto end_run = [&] {
      if (run.empty()) return;
      symbols.push_back(builder_.Terminal(builder_.expressions().Concat(run)));
      run.clear();
    };
    for (const uint32_t part : node.parts) {
      if (IsRegular(part)) {
        run.push_back(ExpressionOf(part));
      } else {
        end_run();
        symbols.push_back(SymbolOf(part));
      }
    }
    end_run();
    return symbols;
  }

  // Recurses as deep as parentheses nest.
  Symbol SymbolOf(uint32_t index) {
    const GbnfNode& node = syntax_.nodes[index];
    if (IsRegular(index)) return builder_.Terminal(ExpressionOf(index));
    switch (node.kind) {
      case GbnfNode::kRule:
        return symbols_[node.rule];
      case GbnfNode::kRepeat:
        return builder_.Repeat(SymbolOf(node.parts[0]), node.min, node.max);
      case GbnfNode::kChoice: {
        const Symbol rule = builder_.Declare("");
        Define(rule, index);
        return rule;
      }
      default:
        return builder_.Sequence(SequenceOf(index));
    }
  }

  const GbnfSyntax& syntax_;
  GrammarBuilder& builder_;
  std::vector<Shape> shapes_;  // by node
  std::vector<std::vector<uint32_t>> used_;
  std::vector<uint32_t> first_node_;  // by rule
  std::vector<uint32_t> order_;
  std::vector<std::optional<ExpressionId>> expressions_;  // by node
  std::vector<Symbol> symbols_;                           // by rule
};

}  // namespace

Result<Symbol> AddGbnf(std::string_view text, GrammarBuilder* builder) {
  MINISGL_ASSIGN_OR_RETURN(const GbnfSyntax syntax, ParseGbnf(text));
  return GbnfCompiler(syntax, builder).Compile();
}

}  // namespace minisgl::grammar
