// The grammar of expressions. Precedence from lowest to highest: if-else, or, and, not,
// comparisons, + -, ~, * / // %, **, sign, postfix, filters.
#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <initializer_list>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"

namespace minisgl::text::jinja {

using Kind = Expr::Kind;

ExpressionParser::Level::Level(ExpressionParser* parser) : parser_(parser) {
  if (++parser_->level_ > kTreeDepthMax) {
    --parser_->level_;
    throw Error(fmt::format("it nests more than {} deep", kTreeDepthMax), parser_->Current().line);
  }
}

Token ExpressionParser::Next() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::ReadsName(std::string_view name, size_t begin) const {
  for (size_t i = begin; i < at_; ++i) {
    const bool is_attribute = i > 0 && tokens_[i - 1].IsOperator(".");
    if (tokens_[i].IsName(name) && !is_attribute) return true;
  }
  return false;
}

bool ExpressionParser::SkipOperator(std::string_view op) {
  if (!Current().IsOperator(op)) return false;
  Next();
  return true;
}

bool ExpressionParser::SkipName(std::string_view name) {
  if (!Current().IsName(name)) return false;
  Next();
  return true;
}

void ExpressionParser::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) FailUnexpected(fmt::format("'{}'", op));
}

std::string ExpressionParser::ExpectName() {
  if (Current().kind != Token::Kind::kName) FailUnexpected("a name");
  return Next().text;
}

void ExpressionParser::FailUnexpected(std::string_view wanted) const {
  const Token& token = Current();
  std::string found;
  switch (token.kind) {
    case Token::Kind::kEnd:
      found = "the end of the template";
      break;
    case Token::Kind::kBlockEnd:
      found = "the end of the block";
      break;
    case Token::Kind::kVariableEnd:
      found = "the end of the expression";
      break;
    default:
      found = fmt::format("\"{}\"", Visible(token.text));
      break;
  }
  throw Error(fmt::format("expected {} (found {})", wanted, found), token.line);
}

ExprPtr ExpressionParser::Make(Kind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

void ExpressionParser::CountDepth(Expr* parent, const ExprPtr& child) {
  if (child == nullptr) return;
  parent->depth = std::max(parent->depth, child->depth + 1);
  if (parent->depth > kTreeDepthMax) {
    throw Error(fmt::format("an expression nests more than {} deep", kTreeDepthMax), parent->line);
  }
}

void ExpressionParser::AddChild(Expr* parent, ExprPtr child) const {
  CountDepth(parent, child);
  parent->children.push_back(std::move(child));
}

void ExpressionParser::SetArguments(Expr* parent, Arguments arguments) const {
  for (const ExprPtr& argument : arguments.positional) CountDepth(parent, argument);
  for (const auto& [name, argument] : arguments.named) CountDepth(parent, argument);
  CountDepth(parent, arguments.more_positional);
  CountDepth(parent, arguments.more_named);
  parent->arguments = std::move(arguments);
}

ExprPtr ExpressionParser::ParseExpression() {
  const Level level(this);
  ExprPtr expr = ParseOr();
  while (Current().IsName("if")) {
    ExprPtr conditional = Make(Kind::kConditional, Next().line);
    AddChild(conditional.get(), std::move(expr));
    AddChild(conditional.get(), ParseOr());
    AddChild(conditional.get(), SkipName("else") ? ParseExpression() : nullptr);
    expr = std::move(conditional);
  }
  return expr;
}

ExprPtr ExpressionParser::ParseTuple(bool with_conditional) {
  const int line = Current().line;
  ExprPtr first = with_conditional ? ParseExpression() : ParseOr();
  if (!Current().IsOperator(",")) return first;
  ExprPtr tuple = Make(Kind::kTuple, line);
  AddChild(tuple.get(), std::move(first));
  while (SkipOperator(",")) {
    const bool ends = Current().kind == Token::Kind::kBlockEnd ||
                      Current().kind == Token::Kind::kVariableEnd || Current().IsOperator(")");
    if (ends) break;
    AddChild(tuple.get(), with_conditional ? ParseExpression() : ParseOr());
  }
  return tuple;
}

// Parses operand (operator operand)* to one flat node.
template <typename Operand>
ExprPtr ExpressionParser::ParseChain(Kind kind, std::initializer_list<std::string_view> operators,
                                     Operand operand) {
  ExprPtr first = operand();
  const auto at_operator = [&] {
    const Token& token = Current();
    return (token.kind == Token::Kind::kOperator || token.kind == Token::Kind::kName) &&
           std::find(operators.begin(), operators.end(), token.text) != operators.end();
  };
  if (!at_operator()) return first;
  ExprPtr chain = Make(kind, Current().line);
  AddChild(chain.get(), std::move(first));
  while (at_operator()) {
    chain->ops.push_back(Next().text);
    AddChild(chain.get(), operand());
  }
  return chain;
}

ExprPtr ExpressionParser::ParseOr() {
  return ParseChain(Kind::kOr, {"or"}, [this] { return ParseAnd(); });
}

ExprPtr ExpressionParser::ParseAnd() {
  return ParseChain(Kind::kAnd, {"and"}, [this] { return ParseNot(); });
}

ExprPtr ExpressionParser::ParseNot() {
  if (!Current().IsName("not")) return ParseCompare();
  const Level level(this);
  ExprPtr expr = Make(Kind::kNot, Next().line);
  AddChild(expr.get(), ParseNot());
  return expr;
}

ExprPtr ExpressionParser::ParseCompare() {
  ExprPtr first = ParseSum();
  ExprPtr chain;
  while (true) {
    const Token& token = Current();
    static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
    std::string op;
    if (token.kind == Token::Kind::kOperator &&
        std::find(std::begin(kOperators), std::end(kOperators), token.text) !=
            std::end(kOperators)) {
      op = token.text;
    } else if (token.IsName("in")) {
      op = "in";
    } else if (token.IsName("not") && Look().IsName("in")) {
      op = "not in";
      Next();
    } else {
      return chain != nullptr ? std::move(chain) : std::move(first);
    }
    if (chain == nullptr) {
      chain = Make(Kind::kCompare, token.line);
      AddChild(chain.get(), std::move(first));
    }
    Next();
    chain->ops.push_back(std::move(op));
    AddChild(chain.get(), ParseSum());
  }
}

ExprPtr ExpressionParser::ParseSum() {
  return ParseChain(Kind::kArithmetic, {"+", "-"}, [this] { return ParseConcat(); });
}

ExprPtr ExpressionParser::ParseConcat() {
  return ParseChain(Kind::kConcat, {"~"}, [this] { return ParseProduct(); });
}

ExprPtr ExpressionParser::ParseProduct() {
  return ParseChain(Kind::kArithmetic, {"*", "/", "//", "%"}, [this] { return ParsePower(); });
}

ExprPtr ExpressionParser::ParsePower() {
  return ParseChain(Kind::kArithmetic, {"**"},
                    [this] { return ParseUnary(/*with_filters=*/true); });
}

ExprPtr ExpressionParser::ParseUnary(bool with_filters) {
  ExprPtr expr;
  if (Current().IsOperator("-") || Current().IsOperator("+")) {
    const Level level(this);
    const Token sign = Next();
    expr = Make(sign.text == "-" ? Kind::kNegative : Kind::kPositive, sign.line);
    AddChild(expr.get(), ParseUnary(/*with_filters=*/false));
  } else {
    expr = ParsePrimary();
  }
  expr = ParsePostfix(std::move(expr));
  while (with_filters) {
    if (Current().IsOperator("|")) {
      expr = ParseFilters(std::move(expr));
    } else if (Current().IsName("is")) {
      expr = ParseTest(std::move(expr));
    } else if (Current().IsOperator("(")) {
      expr = ParsePostfix(std::move(expr));
    } else {
      break;
    }
  }
  return expr;
}

ExprPtr ExpressionParser::ParsePrimary() {
  const Token& token = Current();
  ExprPtr expr = Make(Kind::kConstant, token.line);
  switch (token.kind) {
    case Token::Kind::kName:
      return ParseName();
    case Token::Kind::kInteger:
      expr->value = token.is_long ? Value::FromInteger(BigInteger::FromDigits(token.text))
                                  : Value(token.integer);
      Next();
      return expr;
    case Token::Kind::kFloat:
      expr->value = Value(Next().number);
      return expr;
    case Token::Kind::kString: {
      std::string text = Next().text;
      while (Current().kind == Token::Kind::kString) text += Next().text;
      expr->value = Value(Text(text));
      return expr;
    }
    default:
      break;
  }
  if (SkipOperator("(")) return ParseParenthesis();
  if (SkipOperator("[")) return ParseListOrDict(/*is_list=*/true);
  if (SkipOperator("{")) return ParseListOrDict(/*is_list=*/false);
  FailUnexpected("an expression");
}

ExprPtr ExpressionParser::ParseName() {
  const Token token = Next();
  ExprPtr expr = Make(Kind::kConstant, token.line);
  if (token.text == "true" || token.text == "True") {
    expr->value = Value(true);
  } else if (token.text == "false" || token.text == "False") {
    expr->value = Value(false);
  } else if (token.text == "none" || token.text == "None") {
    expr->value = Value(None{});
  } else {
    expr->kind = Kind::kName;
    expr->name = token.text;
  }
  return expr;
}

ExprPtr ExpressionParser::ParseParenthesis() {
  const int line = Current().line;
  if (SkipOperator(")")) return Make(Kind::kTuple, line);
  ExprPtr expr = ParseTuple();
  ExpectOperator(")");
  return expr;
}

ExprPtr ExpressionParser::ParseListOrDict(bool is_list) {
  const std::string_view close = is_list ? "]" : "}";
  ExprPtr expr = Make(is_list ? Kind::kList : Kind::kDict, Current().line);
  while (!Current().IsOperator(close)) {
    if (!expr->children.empty()) {
      ExpectOperator(",");
      if (Current().IsOperator(close)) break;
    }
    AddChild(expr.get(), ParseExpression());
    if (!is_list) {
      ExpectOperator(":");
      AddChild(expr.get(), ParseExpression());
    }
  }
  Next();
  return expr;
}

ExprPtr ExpressionParser::ParsePostfix(ExprPtr base) {
  while (true) {
    const int line = Current().line;
    if (SkipOperator(".")) {
      ExprPtr expr;
      if (Current().kind == Token::Kind::kInteger) {
        expr = Make(Kind::kItem, line);
        ExprPtr index = Make(Kind::kConstant, line);
        index->value = Value(Next().integer);
        AddChild(expr.get(), std::move(base));
        AddChild(expr.get(), std::move(index));
      } else {
        expr = Make(Kind::kAttribute, line);
        expr->name = ExpectName();
        AddChild(expr.get(), std::move(base));
      }
      base = std::move(expr);
    } else if (SkipOperator("[")) {
      base = ParseSubscript(std::move(base));
    } else if (Current().IsOperator("(")) {
      ExprPtr expr = Make(Kind::kCall, line);
      AddChild(expr.get(), std::move(base));
      SetArguments(expr.get(), ParseArguments());
      base = std::move(expr);
    } else {
      return base;
    }
  }
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr base) {
  const int line = Current().line;
  ExprPtr parts[3];
  bool is_slice = false;
  for (int part = 0; part < 3; ++part) {
    if (!Current().IsOperator(":") && !Current().IsOperator("]")) parts[part] = ParseExpression();
    if (part == 2 || !SkipOperator(":")) break;
    is_slice = true;
  }
  if (!is_slice && parts[0] == nullptr) FailUnexpected("an index");
  ExprPtr expr = Make(is_slice ? Kind::kSlice : Kind::kItem, line);
  AddChild(expr.get(), std::move(base));
  AddChild(expr.get(), std::move(parts[0]));
  if (is_slice) {
    AddChild(expr.get(), std::move(parts[1]));
    AddChild(expr.get(), std::move(parts[2]));
  }
  ExpectOperator("]");
  return expr;
}

Arguments ExpressionParser::ParseArguments() {
  Arguments arguments;
  ExpectOperator("(");
  bool is_first = true;
  while (!Current().IsOperator(")")) {
    if (!is_first) {
      ExpectOperator(",");
      if (Current().IsOperator(")")) break;
    }
    is_first = false;
    if (SkipOperator("**")) {
      if (arguments.more_named != nullptr) FailUnexpected("one **");
      arguments.more_named = ParseExpression();
    } else if (SkipOperator("*")) {
      if (arguments.more_positional != nullptr || arguments.more_named != nullptr)
        FailUnexpected("one * before any **");
      arguments.more_positional = ParseExpression();
    } else if (arguments.more_named == nullptr && Current().kind == Token::Kind::kName &&
               Look().IsOperator("=")) {
      std::string name = Next().text;
      Next();
      arguments.named.emplace_back(std::move(name), ParseExpression());
    } else {
      if (!arguments.named.empty() || arguments.more_positional != nullptr ||
          arguments.more_named != nullptr) {
        FailUnexpected("a named argument");
      }
      arguments.positional.push_back(ParseExpression());
    }
  }
  Next();
  return arguments;
}

ExprPtr ExpressionParser::ParseFilters(ExprPtr base) {
  while (SkipOperator("|")) {
    ExprPtr expr = Make(Kind::kFilter, Current().line);
    expr->name = ExpectName();
    AddChild(expr.get(), std::move(base));
    if (Current().IsOperator("(")) SetArguments(expr.get(), ParseArguments());
    base = std::move(expr);
  }
  return base;
}

ExprPtr ExpressionParser::ParseTest(ExprPtr base) {
  const int line = Next().line;
  const bool is_negated = SkipName("not");
  ExprPtr test = Make(Kind::kTest, line);
  test->name = ExpectName();
  AddChild(test.get(), std::move(base));
  const Token& token = Current();
  if (token.IsName("is")) throw Error("tests with 'is' cannot be chained", token.line);
  // As in the reference, any other name is the argument, even `if`, which then fails.
  const bool has_argument =
      (token.kind == Token::Kind::kName && token.text != "else" && token.text != "or" &&
       token.text != "and") ||
      token.kind == Token::Kind::kString || token.kind == Token::Kind::kInteger ||
      token.kind == Token::Kind::kFloat || token.IsOperator("[") || token.IsOperator("{");
  if (token.IsOperator("(")) {
    SetArguments(test.get(), ParseArguments());
  } else if (has_argument) {
    Arguments arguments;
    arguments.positional.push_back(ParsePostfix(ParsePrimary()));
    SetArguments(test.get(), std::move(arguments));
  }
  if (!is_negated) return test;
  ExprPtr expr = Make(Kind::kNot, line);
  AddChild(expr.get(), std::move(test));
  return expr;
}

}  // namespace minisgl::text::jinja
