// Recursive-descent parser for the expressions of a template, one function for each level of the
// grammar. Its methods throw Error with the line.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace minisgl::text::jinja {

class ExpressionParser {
 public:
  // True if the tokens from index `begin` to the current one contain the name, not as an attribute.
  bool ReadsName(std::string_view name, size_t begin) const;
  size_t place() const { return at_; }  // index of the current token

  // REQUIRES: the last token is kEnd.
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Current() const { return tokens_[at_]; }
  const Token& Look(size_t ahead = 1) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token Next();  // returns the current token and advances
  // Skip* advance and return true if the current token matches; Expect* throw if it does not.
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  void ExpectOperator(std::string_view op);
  std::string ExpectName();
  [[noreturn]] void FailUnexpected(std::string_view wanted) const;

  ExprPtr ParseExpression();
  // Parses an expression, or a tuple of expressions separated by commas. If `with_conditional` is
  // false, stops before an `if`.
  ExprPtr ParseTuple(bool with_conditional = true);
  // Parses a chain of `| name (...)`, applied to `base` (null: to the text of a block).
  ExprPtr ParseFilters(ExprPtr base);
  Arguments ParseArguments();

  // Counts a nesting level during its lifetime; throws if there are more than kTreeDepthMax.
  class Level {
   public:
    explicit Level(ExpressionParser* parser);
    ~Level() { --parser_->level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser* parser_;
  };

 private:
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filters);
  ExprPtr ParsePrimary();
  ExprPtr ParseName();
  ExprPtr ParseParenthesis();
  ExprPtr ParseListOrDict(bool is_list);
  ExprPtr ParsePostfix(ExprPtr base);
  ExprPtr ParseSubscript(ExprPtr base);
  ExprPtr ParseTest(ExprPtr base);
  template <typename Operand>
  ExprPtr ParseChain(Expr::Kind kind, std::initializer_list<std::string_view> operators,
                     Operand operand);

  ExprPtr Make(Expr::Kind kind, int line) const;
  // Appends `child` (may be null) and updates the depth.
  void AddChild(Expr* parent, ExprPtr child) const;
  void SetArguments(Expr* parent, Arguments arguments) const;
  static void CountDepth(Expr* parent, const ExprPtr& child);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
};

}  // namespace minisgl::text::jinja
