// Parses the statements of a template: {% ... %} blocks and the text between them.
#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/expression_parser.h"

namespace minisgl::text::jinja {
namespace {

using Kind = Statement::Kind;
using StatementPtr = std::unique_ptr<Statement>;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : expressions_(std::move(tokens)) {}

  Block ParseTemplate() { return ParseBlock({}); }

 private:
  // Parses statements up to a tag named by one of `ends`, which becomes the current token. If
  // `ends` is empty, parses up to the end of the template.
  Block ParseBlock(std::initializer_list<std::string_view> ends) {
    const ExpressionParser::Level level(&expressions_);
    Block block;
    while (true) {
      const Token& token = expressions_.Current();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.size() > 0) expressions_.FailUnexpected(fmt::format("'{}'", *(ends.end() - 1)));
        return block;
      }
      if (token.kind == Token::Kind::kBlockBegin) {
        expressions_.Next();
        const Token& name = expressions_.Current();
        if (name.kind == Token::Kind::kName &&
            std::find(ends.begin(), ends.end(), name.text) != ends.end()) {
          return block;
        }
        block.push_back(ParseStatement());
      } else {
        block.push_back(ParseText());
      }
    }
  }

  StatementPtr Make(Kind kind, int line) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  void EndBlock() {
    if (expressions_.Current().kind != Token::Kind::kBlockEnd)
      expressions_.FailUnexpected("the end of the block");
    expressions_.Next();
  }

  // Parses a body up to the tag `end`, inclusive.
  Block ParseBody(std::string_view end) {
    Block body = ParseBlock({end});
    expressions_.Next();
    EndBlock();
    return body;
  }

  StatementPtr ParseText() {
    Token token = expressions_.Next();
    if (token.kind == Token::Kind::kData) {
      StatementPtr data = Make(Kind::kData, token.line);
      data->text = Text(token.text);
      return data;
    }
    StatementPtr output = Make(Kind::kOutput, token.line);
    output->expr = expressions_.ParseTuple();
    if (expressions_.Current().kind != Token::Kind::kVariableEnd) {
      expressions_.FailUnexpected("the end of the expression");
    }
    expressions_.Next();
    return output;
  }

  StatementPtr ParseStatement() {
    const int line = expressions_.Current().line;
    const std::string name = expressions_.ExpectName();
    if (name == "if") return ParseIf(line);
    if (name == "for") return ParseFor(line);
    if (name == "set") return ParseSet(line);
    if (name == "macro") return ParseMacro(line);
    if (name == "call") return ParseCall(line);
    if (name == "filter") return ParseFilterBlock(line);
    if (name == "with") return ParseWith(line);
    if (name == "generation") {
      StatementPtr statement = Make(Kind::kScope, line);
      EndBlock();
      statement->body = ParseMacroBody("endgeneration");
      return statement;
    }
    if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) throw Error(fmt::format("'{}' outside of a loop", name), line);
      EndBlock();
      return Make(name == "break" ? Kind::kBreak : Kind::kContinue, line);
    }
    throw Error(fmt::format("the tag \"{}\" is not supported or misplaced", Visible(name)), line);
  }

  StatementPtr ParseIf(int line) {
    StatementPtr statement = Make(Kind::kIf, line);
    std::string tag = "if";
    while (tag == "if" || tag == "elif") {
      ExprPtr condition = expressions_.ParseTuple();
      EndBlock();
      Block body = ParseBlock({"elif", "else", "endif"});
      statement->branches.emplace_back(std::move(condition), std::move(body));
      tag = expressions_.ExpectName();
    }
    EndBlock();
    if (tag == "else") statement->branches.emplace_back(nullptr, ParseBody("endif"));
    return statement;
  }

  StatementPtr ParseFor(int line) {
    StatementPtr statement = Make(Kind::kFor, line);
    statement->target = ParseTarget(/*with_attribute=*/false);
    if (!expressions_.SkipName("in")) expressions_.FailUnexpected("'in'");
    statement->expr = expressions_.ParseTuple(/*with_conditional=*/false);
    if (expressions_.SkipName("if")) statement->condition = expressions_.ParseExpression();
    statement->is_recursive = expressions_.SkipName("recursive");
    EndBlock();
    ++loop_depth_;
    statement->body = ParseBlock({"else", "endfor"});
    --loop_depth_;
    const std::string tag = expressions_.ExpectName();
    EndBlock();
    if (tag == "else") statement->other = ParseBody("endfor");
    return statement;
  }

  Target ParseSingleTarget(bool with_attribute) {
    Target target;
    if (expressions_.SkipOperator("(")) {
      target = ParseTarget(/*with_attribute=*/false);
      expressions_.ExpectOperator(")");
      return target;
    }
    const int line = expressions_.Current().line;
    target.name = expressions_.ExpectName();
    static constexpr std::string_view kReserved[] = {"true",  "false", "none", "True",
                                                     "False", "None",  "loop"};
    if (std::find(std::begin(kReserved), std::end(kReserved), target.name) != std::end(kReserved)) {
      throw Error(fmt::format("\"{}\" cannot be assigned to", target.name), line);
    }
    if (with_attribute && expressions_.SkipOperator("."))
      target.attribute = expressions_.ExpectName();
    return target;
  }

  Target ParseTarget(bool with_attribute) {
    const ExpressionParser::Level level(&expressions_);
    Target first = ParseSingleTarget(with_attribute);
    if (!expressions_.Current().IsOperator(",")) return first;
    Target target;
    target.tuple.push_back(std::move(first));
    while (expressions_.SkipOperator(",")) {
      if (expressions_.Current().kind != Token::Kind::kName &&
          !expressions_.Current().IsOperator("("))
        break;
      if (expressions_.Current().IsName("in")) break;
      target.tuple.push_back(ParseSingleTarget(with_attribute));
    }
    return target;
  }

  StatementPtr ParseSet(int line) {
    StatementPtr statement = Make(Kind::kSet, line);
    statement->target = ParseTarget(/*with_attribute=*/true);
    if (expressions_.SkipOperator("=")) {
      statement->expr = expressions_.ParseTuple();
      EndBlock();
      return statement;
    }
    statement->kind = Kind::kSetBlock;
    statement->expr = expressions_.ParseFilters(nullptr);
    EndBlock();
    statement->body = ParseBody("endset");
    return statement;
  }

  void ParseParameters(Macro* macro) {
    expressions_.ExpectOperator("(");
    while (!expressions_.Current().IsOperator(")")) {
      if (!macro->parameters.empty()) expressions_.ExpectOperator(",");
      Parameter parameter;
      parameter.name = expressions_.ExpectName();
      if (expressions_.SkipOperator("=")) parameter.fallback = expressions_.ParseExpression();
      macro->parameters.push_back(std::move(parameter));
    }
    expressions_.Next();
  }

  // In the body of a macro, break and continue do not apply to a loop around it.
  Block ParseMacroBody(std::string_view end) {
    const int loop_depth = std::exchange(loop_depth_, 0);
    Block body = ParseBody(end);
    loop_depth_ = loop_depth;
    return body;
  }

  StatementPtr ParseMacro(int line) {
    StatementPtr statement = Make(Kind::kMacro, line);
    statement->macro = std::make_unique<Macro>();
    statement->macro->name = expressions_.ExpectName();
    ParseParameters(statement->macro.get());
    EndBlock();
    const size_t begin = expressions_.place();
    statement->macro->body = ParseMacroBody("endmacro");
    statement->macro->takes_varargs = expressions_.ReadsName("varargs", begin);
    statement->macro->takes_caller = expressions_.ReadsName("caller", begin);
    statement->macro->takes_kwargs = expressions_.ReadsName("kwargs", begin);
    return statement;
  }

  StatementPtr ParseCall(int line) {
    StatementPtr statement = Make(Kind::kCall, line);
    statement->macro = std::make_unique<Macro>();
    statement->macro->name = "caller";
    if (expressions_.Current().IsOperator("(")) ParseParameters(statement->macro.get());
    statement->expr = expressions_.ParseExpression();
    if (statement->expr->kind != Expr::Kind::kCall) throw Error("'call' needs a call", line);
    EndBlock();
    statement->macro->body = ParseMacroBody("endcall");
    return statement;
  }

  StatementPtr ParseFilterBlock(int line) {
    StatementPtr statement = Make(Kind::kFilter, line);
    ExprPtr filter = std::make_unique<Expr>();
    filter->kind = Expr::Kind::kFilter;
    filter->line = line;
    filter->name = expressions_.ExpectName();
    filter->children.push_back(nullptr);
    if (expressions_.Current().IsOperator("(")) filter->arguments = expressions_.ParseArguments();
    statement->expr = expressions_.ParseFilters(std::move(filter));
    EndBlock();
    statement->body = ParseBody("endfilter");
    return statement;
  }

  StatementPtr ParseWith(int line) {
    StatementPtr statement = Make(Kind::kWith, line);
    while (expressions_.Current().kind != Token::Kind::kBlockEnd) {
      if (!statement->bindings.empty()) expressions_.ExpectOperator(",");
      Target target = ParseSingleTarget(/*with_attribute=*/false);
      expressions_.ExpectOperator("=");
      statement->bindings.emplace_back(std::move(target), expressions_.ParseExpression());
    }
    EndBlock();
    statement->body = ParseBody("endwith");
    return statement;
  }

  ExpressionParser expressions_;
  int loop_depth_ = 0;
};

}  // namespace

Block Parse(std::vector<Token> tokens) {
  return StatementParser(std::move(tokens)).ParseTemplate();
}

}  // namespace minisgl::text::jinja
