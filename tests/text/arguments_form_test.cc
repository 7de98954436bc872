// The form in which templates take the arguments of tool calls, and calls rendered as Jinja2 does.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/text/chat_messages.h"
#include "minisgl/text/chat_template.h"
#include "text_test_util.h"

namespace minisgl {
namespace {

constexpr ArgumentsForm kObjectForm = ArgumentsForm::kObject;
constexpr ArgumentsForm kTextForm = ArgumentsForm::kText;

std::unique_ptr<ChatTemplate> CallTemplate(const std::string& source) {
  auto chat = ChatTemplate::Parse(source, "t.jinja");
  EXPECT_TRUE(chat.ok()) << source << "\n" << chat.status().message();
  return chat.ok() ? std::move(*chat) : nullptr;
}

// A template that writes `call` for each call `c`.
std::string ForEachCall(const std::string& call) {
  return "{% for m in messages %}{% for c in m.tool_calls %}" + call + "{% endfor %}{% endfor %}";
}

// `call` rendered of one call, whose members besides the name are `arguments` in JSON.
std::string CallWith(const std::string& call, const std::string& arguments) {
  const auto chat = CallTemplate(ForEachCall(call));
  ChatInput input;
  input.messages = *ParseJson(R"([{"role": "user", "content": "q"}, {"role": "assistant",)"
                              R"( "content": null, "tool_calls": [{"id": "c1", "type":)"
                              R"( "function", "function": {"name": "f")" +
                              arguments + R"(}}]}, {"role": "tool", "content": "r"}])");
  const auto pieces = RenderMessages(*chat, &input);
  return pieces.ok() ? Joined(*pieces) : "error: " + pieces.status().message();
}

std::string WithText(const std::string& call, const std::string& text) {
  return CallWith(call, R"(, "arguments": )" + Json(text).Dump());
}

const char* const kItems =
    "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}";
const char* const kToJson = "{{ c.function.arguments | tojson }}";
const char* const kMapping =
    "{% if c.function.arguments is mapping %}{% for k in c.function.arguments %}{{ k }}="
    "{{ c.function.arguments[k] }};{% endfor %}{% endif %}";
const char* const kAdded = "{{ '' + c.function.arguments }}";
const char* const kPrinted = "{{ c.function.arguments }}";

TEST(ArgumentsFormTest, TemplatesThatTakeAnObjectGetOne) {
  for (const char* call : {kItems, kMapping}) {
    EXPECT_EQ(WithText(call, R"({"city": "Oslo", "days": 2})"), "city=Oslo;days=2;") << call;
    EXPECT_EQ(CallWith(call, R"(, "arguments": {"city": "Oslo", "days": 2})"), "city=Oslo;days=2;");
    for (const char* none : {R"(, "arguments": "")", R"(, "arguments": " \n")",
                             R"(, "arguments": null)", R"(, "arguments": {})", ""}) {
      EXPECT_EQ(CallWith(call, none), "") << call << none;
    }
  }
  EXPECT_EQ(WithText(kToJson, R"({"city":"Oslo","days":2})"), R"({"city": "Oslo", "days": 2})");
  EXPECT_EQ(WithText(kToJson, ""), "{}");
}

TEST(ArgumentsFormTest, TemplatesThatTakeATextAloneGetOne) {
  for (const char* call : {kAdded, kPrinted}) {
    EXPECT_EQ(WithText(call, R"({"city":"Oslo", "days": 2e0})"), R"({"city":"Oslo", "days": 2e0})");
    EXPECT_EQ(CallWith(call, R"(, "arguments": {"city": "Oslo", "days": 2})"),
              R"({"city": "Oslo", "days": 2})")
        << call;
    EXPECT_EQ(WithText(call, ""), "") << "as it is given";
    EXPECT_EQ(CallWith(call, R"(, "arguments": null)"), "{}");
    EXPECT_EQ(WithText(call, "{\"cut"), "{\"cut");
  }
}

TEST(ArgumentsFormTest, NoDigitIsLostAndKeysKeepTheirOrder) {
  EXPECT_EQ(WithText(kToJson, R"({"z": 18446744073709551617, "a": -9223372036854775809, "m": 1.0,)"
                              R"( "b": [1e3, 0.1, {"y": null, "x": true}]})"),
            R"({"z": 18446744073709551617, "a": -9223372036854775809, "m": 1.0,)"
            R"( "b": [1000.0, 0.1, {"y": null, "x": true}]})");
  EXPECT_EQ(WithText(kToJson, R"({"a": 1, "b": 2, "a": [3]})"), R"({"a": [3], "b": 2})")
      << "of keys that are given twice the last counts, as in Python";
}

TEST(ArgumentsFormTest, WhatIsNoObjectStaysAsItIs) {
  EXPECT_EQ(WithText(kToJson, "{\"city\": \"Os"), R"("{\"city\": \"Os")");
  EXPECT_EQ(WithText(kToJson, "[1]"), R"("[1]")");
  EXPECT_EQ(WithText(kToJson, "Oslo"), R"("Oslo")");
  EXPECT_EQ(CallWith(kToJson, R"(, "arguments": [1])"), "[1]");
  EXPECT_EQ(CallWith(kToJson, R"(, "arguments": 7)"), "7");
}

TEST(ArgumentsFormTest, CallsWithoutAFunctionAreCallsToo) {
  const auto chat = CallTemplate(ForEachCall("{{ c.name }}{{ c.arguments | tojson }}"));
  ChatInput input;
  input.messages = *ParseJson(
      R"([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{\"a\": 1}"}]}])");
  EXPECT_EQ(Joined(*RenderMessages(*chat, &input)), R"(f{"a": 1})");
  EXPECT_EQ(CallTemplate(ForEachCall("{{ c.name + c.arguments }}"))->arguments_form(false),
            kTextForm);
}

TEST(ArgumentsFormTest, IsThatOfConversationsWithOrWithoutTools) {
  const std::string source = ForEachCall(
      "{% if tools %}{{ '' + c.function.arguments }}{% else %}"
      "{{ c.function.arguments | tojson }}{% endif %}");
  const auto chat = CallTemplate(source);
  EXPECT_EQ(chat->arguments_form(false), kObjectForm);
  EXPECT_EQ(chat->arguments_form(true), kTextForm);
  EXPECT_EQ(CallTemplate("{{ messages[0].content }}")->arguments_form(false), kObjectForm);
}

// Templates refuse conversations in which a call does not stand as they want it.
TEST(ArgumentsFormTest, IsFoundWhateverATemplateWantsBesideACall) {
  for (const char* refused : {"messages[-1].role == 'tool'", "messages[-1].role != 'tool'",
                              "messages[1].content is none", "messages[1].content is not none",
                              "not messages[1].content", "messages[1].content == ''"}) {
    const std::string guard =
        std::string("{% if ") + refused + " %}{{ raise_exception('no') }}{% endif %}";
    EXPECT_EQ(CallTemplate(guard + ForEachCall(kAdded))->arguments_form(false), kTextForm)
        << refused;
    EXPECT_EQ(CallTemplate(guard + ForEachCall(kToJson))->arguments_form(false), kObjectForm)
        << refused;
  }
}

// The file contains the output of Jinja2, written by make_tool_call_cases.py.
TEST(ArgumentsFormTest, CallsOfServicesAreRenderedAsJinja2RendersObjects) {
  const std::vector<Json> rows = ReadRows(MINISGL_SOURCE_DIR "/tests/text/tool_call_cases.jsonl");
  ASSERT_GE(rows.size(), 100u);
  size_t num_files = 0;
  std::map<std::string, std::unique_ptr<ChatTemplate>> templates;
  for (const Json& row : rows) {
    const Json* const file = row.Find("template");
    if (file != nullptr && !HasShared("templates/cases.jsonl")) continue;
    const std::string source =
        file == nullptr ? row.Find("source")->as_string()
                        : ReadBytes(SharedDir() + "/templates/" + file->as_string() + ".jinja");
    if (!templates.contains(source)) templates[source] = CallTemplate(source);
    num_files += file != nullptr ? 1 : 0;
    ChatInput input;
    input.messages = *row.Find("messages");
    input.tools = *row.Find("tools");
    input.bos_token = "<s>";
    input.eos_token = "</s>";
    input.unk_token = "<unk>";
    input.pad_token = "<pad>";
    const std::string name = file == nullptr ? source : file->as_string();
    EXPECT_EQ(templates[source]->arguments_form(!input.tools.is_null()),
              *row.Find("form") == Json("text") ? kTextForm : kObjectForm)
        << name;
    const auto pieces = RenderMessages(*templates[source], &input);
    if (const Json* const expected = row.Find("expected")) {
      EXPECT_EQ(pieces.ok() ? Joined(*pieces) : pieces.status().message(), expected->as_string())
          << name;
    } else {
      EXPECT_FALSE(pieces.ok()) << name;
    }
  }
  EXPECT_TRUE(num_files >= 30 || !HasShared("templates/cases.jsonl")) << num_files;
}

}  // namespace
}  // namespace minisgl
