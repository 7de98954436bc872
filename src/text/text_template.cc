#include "minisgl/text/text_template.h"

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "minisgl/base/utf8.h"
#include "minisgl/text/chat_template.h"
#include "text/jinja/guard.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace minisgl {
namespace text {
namespace {

constexpr const char* kOfUser = "the template";
constexpr std::string_view kWholeRow = "row";

class JinjaTextTemplate final : public TextTemplate {
 public:
  JinjaTextTemplate(std::string name, jinja::Block block, std::set<std::string, std::less<>> names)
      : name_(std::move(name)), block_(std::move(block)), names_(std::move(names)) {}

  // Copies only the columns that the template may read.
  Result<std::string> Render(const Json& columns) const override {
    std::string text;
    MINISGL_RETURN_IF_ERROR(jinja::Guard(name_, kOfUser, [&] {
      std::vector<std::pair<std::string, jinja::Value>> variables;
      for (const auto& [name, value] : columns.as_object()) {
        if (!names_.contains(name)) continue;
        variables.emplace_back(name, jinja::FromJson(value, /*trusted=*/false));
      }
      jinja::Value whole;
      const bool is_column = columns.Find(kWholeRow) != nullptr;
      if (names_.contains(kWholeRow)) whole = jinja::FromJson(columns, /*trusted=*/false);
      if (!is_column && !whole.is_undefined()) variables.emplace_back(kWholeRow, whole);
      jinja::Interpreter interpreter(std::move(variables));
      if (is_column && !whole.is_undefined()) {
        interpreter.SetMembersBehind(std::string(kWholeRow), std::move(whole));
      }
      interpreter.RequireDefined();
      text = interpreter.Run(block_).bytes();
    }));
    return text;
  }

 private:
  const std::string name_;
  const jinja::Block block_;
  const std::set<std::string, std::less<>> names_;  // that stand in tags
};

}  // namespace
}  // namespace text

Result<std::unique_ptr<TextTemplate>> TextTemplate::Parse(std::string_view source,
                                                          const std::string& name) {
  const std::string visible_name = Visible(name, 400);
  if (source.size() > kTemplateBytesMax) {
    return BadInput("{}: the template has {} bytes; at most {} are supported", visible_name,
                    source.size(), kTemplateBytesMax);
  }
  text::jinja::Block block;
  std::set<std::string, std::less<>> names;
  MINISGL_RETURN_IF_ERROR(text::jinja::Guard(visible_name, text::kOfUser, [&] {
    std::vector<text::jinja::Token> tokens = text::jinja::Lex(source);
    for (const text::jinja::Token& token : tokens) {
      if (token.kind == text::jinja::Token::Kind::kName) names.insert(token.text);
    }
    block = text::jinja::Parse(std::move(tokens));
  }));
  return std::unique_ptr<TextTemplate>(
      std::make_unique<text::JinjaTextTemplate>(visible_name, std::move(block), std::move(names)));
}

}  // namespace minisgl
