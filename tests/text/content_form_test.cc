// The form in which templates take the content of messages, as found in their syntax trees.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "minisgl/text/chat_messages.h"
#include "minisgl/text/chat_template.h"
#include "text_test_util.h"

namespace minisgl {
namespace {

constexpr ContentForm kString = ContentForm::kString;
constexpr ContentForm kParts = ContentForm::kParts;

ContentForm FormOf(const std::string& source) {
  const auto chat = ChatTemplate::Parse(source, "t.jinja");
  EXPECT_TRUE(chat.ok()) << source << "\n" << chat.status().message();
  return chat.ok() ? (*chat)->content_form() : kString;
}

// `body` in a loop over the messages.
std::string ForEachPart(const std::string& body) {
  return "{% for message in messages %}" + body + "{% endfor %}";
}

TEST(ContentFormTest, TemplatesThatReadTheTextOfPartsTakeParts) {
  const std::vector<std::string> sources = {
      ForEachPart("{% for c in message['content'] %}{{ c['text'] }}{% endfor %}"),
      ForEachPart("{% for c in message.content %}{{ c.text }}{% endfor %}"),
      ForEachPart("{% for c in message.get('content') %}{{ c.get('text') }}{% endfor %}"),
      ForEachPart("{% for c in message.content if c.type == 'text' %}{{ c.text }}{% endfor %}"),
      // LLaVA: another template's string has the loop's name.
      ForEachPart("{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
                  "{% generation %}{{ content['text'] + ' ' }}{% endgeneration %}{% endfor %}"),
      ForEachPart("{{ message['content'][0]['text'] }}"),
      ForEachPart("{{ (message.content | first).text }}"),
      ForEachPart("{{ message.content | map(attribute='text') | join }}"),
      ForEachPart("{{ message.content | join(' ', attribute='text') }}"),
      ForEachPart("{% for i in range(message.content | length) %}{{ message.content[i].text }}"
                  "{% endfor %}"),
      // By way of names, macros, namespaces and slices.
      ForEachPart("{% set c = message.content %}{% set first = c[0] %}{{ first['text'] }}"),
      "{% macro show(content) %}{% for c in content %}{{ c.text }}{% endfor %}{% endmacro %}" +
          ForEachPart("{{ show(message.content) }}"),
      "{% macro show(parts=none) %}{% for c in parts %}{{ c.text }}{% endfor %}{% endmacro %}" +
          ForEachPart("{{ show(parts=message.content) }}"),
      "{% set ns = namespace(rest=messages[1:]) %}{% for m in ns.rest %}"
      "{% for c in m.content[:2] %}{{ c.text }}{% endfor %}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.rest = messages %}{% for m in ns.rest %}"
      "{{ m.content[-1].text }}{% endfor %}",
      "{% with last = messages | last %}{{ last.content[0].text }}{% endwith %}",
      // Both strings and lists are iterable, and have elements.
      ForEachPart("{% if message.content is iterable %}{% for c in message.content %}{{ c.text }}"
                  "{% endfor %}{% endif %}"),
      ForEachPart(
          "{% if message.content[0].type == 'image' %}:{% endif %}{% for c in message.content %}"
          "{{ c.text }}{% endfor %}"),
  };
  for (const std::string& source : sources) EXPECT_EQ(FormOf(source), kParts) << source;
}

TEST(ContentFormTest, OtherTemplatesTakeAString) {
  const std::vector<std::string> sources = {
      "",
      "fixed",
      ForEachPart("{{ message['content'] }}"),
      ForEachPart("{{ message.content | trim }}"),
      ForEachPart("{{ message.content.split('</think>')[-1] }}{{ message.content[0] }}"),
      ForEachPart("{{ message.content[:4] }}{{ (message.content | tojson)[0] }}"),
      ForEachPart("{% for c in message.content %}{{ c }}.{% endfor %}"),
      // Parts of other lists.
      ForEachPart("{{ message.content }}{% for d in documents %}{{ d.text }}{% endfor %}"),
      ForEachPart(
          "{{ message.content }}{{ tools[0].text }}{% for t in message.tool_calls %}{{ t.text }}"
          "{% endfor %}"),
      // A loop over parts for images alone.
      ForEachPart("{% for c in message.content %}{{ c.url }}{% endfor %}{{ message.content }}"),
  };
  for (const std::string& source : sources) EXPECT_EQ(FormOf(source), kString) << source;
}

TEST(ContentFormTest, TemplatesThatTakeBothFormsKeepTheString) {
  const std::string parts = "{% for c in message.content %}{{ c.text }}{% endfor %}";
  const std::vector<std::string> sources = {
      ForEachPart("{% if message.content is string %}{{ message.content }}{% else %}" + parts +
                  "{% endif %}"),
      ForEachPart("{% if message.content is not string %}" + parts +
                  "{% else %}{{ message.content }}" + "{% endif %}"),
      ForEachPart("{% if message.role == 'x' %}{% elif message.content is string %}" +
                  std::string("{{ message.content }}{% elif message.content is iterable %}") +
                  parts + "{% endif %}"),
      ForEachPart(
          "{{ message.content if message.content is string else message.content[0].text }}"),
      ForEachPart(
          "{% set is_text = message.content is string %}{% if is_text %}{{ message.content }}" +
          std::string("{% else %}") + parts + "{% endif %}"),
      ForEachPart(
          "{% for c in message.content %}{% if c is string %}{{ c }}{% else %}{{ c.text }}" +
          std::string("{% endif %}{% endfor %}")),
      ForEachPart(
          "{{ message.content is not string and message.content[0].text or message.content }}"),
      // The question stands around the call.
      "{% macro all(content) %}{% for c in content %}{{ c.text }}{% endfor %}{% endmacro %}" +
          ForEachPart("{% if message.content is string %}{{ message.content }}{% else %}"
                      "{{ all(message.content) }}{% endif %}"),
      // Parts are of results of tools alone.
      ForEachPart("{% if message.role == 'tool' %}" + parts +
                  "{% else %}{{ message.content }}{% endif %}"),
  };
  for (const std::string& source : sources) EXPECT_EQ(FormOf(source), kString) << source;
}

TEST(ContentFormTest, ASetFormReplacesTheOneFound) {
  const auto chat = ChatTemplate::Parse(ForEachPart("{{ message.content }}"), "t.jinja");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ((*chat)->content_form(), kString);
  (*chat)->SetContentForm(kParts);
  EXPECT_EQ((*chat)->content_form(), kParts);
}

TEST(ContentFormTest, NestedCallsAreVisitedOnce) {
  std::string call = "message.content";
  for (int i = 0; i < 100; ++i) call = "f(" + call + ")";
  EXPECT_EQ(FormOf("{% macro f(x) %}{{ x }}{% endmacro %}" + ForEachPart("{{ message.content }}") +
                   "{% if false %}" + ForEachPart("{{ " + call + " }}") + "{% endif %}"),
            kString);
}

TEST(ContentFormTest, TheTemplateForToolsHasAFormOfItsOwn) {
  const ModelDir dir;
  dir.Write("tokenizer_config.json",
            R"({"chat_template": [{"name": "default", "template": "{{ messages[0].content }}"},
            {"name": "tool_use", "template": "{{ messages[0].content[0].text }}"}]})");
  const auto chat = ChatTemplate::Load(dir.path());
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ((*chat)->content_form(/*with_tools=*/false), kString);
  EXPECT_EQ((*chat)->content_form(/*with_tools=*/true), kParts);
}

TEST(ContentFormTest, TemplatesOfKnownModels) {
  if (!HasShared("templates") || !HasShared("models/vision")) {
    GTEST_SKIP() << "no " << SharedDir() << "/templates or models/vision";
  }
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SharedDir() + "/templates")) {
    if (entry.path().extension() != ".jinja") continue;
    EXPECT_EQ(FormOf(ReadBytes(entry.path().string())), kString) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 20);
  for (const auto& [model, form] :
       std::vector<std::pair<std::string, ContentForm>>{{"gemma3", kString},
                                                        {"gemma4", kString},
                                                        {"llava", kParts},
                                                        {"llava_onevision", kParts},
                                                        {"pixtral", kString},
                                                        {"qwen2_5_vl", kString},
                                                        {"qwen2_vl", kString},
                                                        {"smolvlm", kParts}}) {
    const auto chat = ChatTemplate::Load(SharedDir() + "/models/vision/" + model);
    ASSERT_TRUE(chat.ok() && *chat != nullptr) << model;
    EXPECT_EQ((*chat)->content_form(), form) << model;
  }
}

// The roles whose parts a template renders one by one: "usa" of user, system and assistant.
std::string RolesOfParts(const ChatTemplate& chat) {
  std::string roles;
  for (const char* role : {"user", "system", "assistant", "tool"}) {
    if (chat.TakesParts(role)) roles.push_back(role[0]);
  }
  return roles;
}

std::string RolesOfParts(const std::string& source) {
  const auto chat = ChatTemplate::Parse(source, "t.jinja");
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  return chat.ok() ? RolesOfParts(**chat) : "";
}

TEST(ContentFormTest, ListsStayListsWhereTheirPartsAreRendered) {
  const std::string each = "{% for c in message.content %}{{ c.text | trim }}{% endfor %}";
  const std::string either =
      "{% if message.content is string %}{{ message.content }}{% else %}" + each + "{% endif %}";
  EXPECT_EQ(RolesOfParts(ForEachPart(either)), "usa");
  EXPECT_EQ(RolesOfParts(ForEachPart("{% if message.role == 'user' %}" + either +
                                     "{% else %}{{ message.content }}{% endif %}")),
            "u");
  EXPECT_EQ(RolesOfParts(ForEachPart("{{ bos_token + message.content[0].text }}")), "usat")
      << "a template that takes no strings";
  for (const std::string& source :
       {std::string("fixed"), ForEachPart("{{ message.content }}"),
        ForEachPart("{{ message.content | tojson }}"), ForEachPart("{{ 'a' + message.content }}"),
        ForEachPart("{{ message.content if message.content is string else "
                    "message.content[0].text }}"),
        ForEachPart("{{ raise_exception('no') }}" + either)}) {
    EXPECT_EQ(RolesOfParts(source), "") << source;
  }
  const auto chat = ChatTemplate::Parse(ForEachPart(either + ";"), "t.jinja");
  ASSERT_TRUE(chat.ok());
  const std::string messages = R"([{"role": "user", "content": [{"type": "text", "text": " a "},)"
                               R"( {"type": "text", "text": "b "}]},)"
                               R"( {"role": "tool", "content": [{"type": "text", "text": " c "}]},)"
                               R"( {"role": "user", "content": " d "}])";
  const auto rendered = [&] {
    ChatInput input;
    input.messages = *ParseJson(messages);
    const auto pieces = RenderMessages(**chat, &input);
    return pieces.ok() ? Joined(*pieces) : pieces.status().message();
  };
  EXPECT_EQ(rendered(), "ab; c ; d ;");
  (*chat)->SetContentForm(kString);
  EXPECT_EQ(RolesOfParts(**chat), "");
  EXPECT_EQ(rendered(), " a b ; c ; d ;");
  (*chat)->SetContentForm(kParts);
  EXPECT_EQ(rendered(), "ab;c;d;");
}

TEST(ContentFormTest, RolesOfPartsOfKnownModels) {
  if (!HasShared("models/vision")) GTEST_SKIP() << "no " << SharedDir() << "/models/vision";
  for (const auto& [model, roles] :
       std::vector<std::pair<std::string, std::string>>{{"gemma3", "ua"},
                                                        {"gemma4", "usa"},
                                                        {"llava", "usat"},
                                                        {"llava_onevision", "usat"},
                                                        {"pixtral", "u"},
                                                        {"qwen2_5_vl", "usa"},
                                                        {"qwen2_vl", "usa"},
                                                        {"smolvlm", "usat"}}) {
    const auto chat = ChatTemplate::Load(SharedDir() + "/models/vision/" + model);
    ASSERT_TRUE(chat.ok() && *chat != nullptr) << model;
    EXPECT_EQ(RolesOfParts(**chat), roles) << model;
  }
}

std::string Rendered(ChatTemplate* chat, const std::string& messages) {
  ChatInput input;
  input.messages = *ParseJson(messages);
  const auto pieces = RenderMessages(*chat, &input);
  return pieces.ok() ? Joined(*pieces) : pieces.status().message();
}

TEST(ContentFormTest, ContentsAreBroughtIntoTheForm) {
  const std::string source = ForEachPart("{{ message.content | tojson }};");
  const auto chat = ChatTemplate::Parse(source, "t.jinja");
  ASSERT_TRUE(chat.ok());
  const std::string messages =
      R"([{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text":)"
      R"( "b"}, {"type": "text", "text": "c"}]}, {"role": "user", "content": []},)"
      R"( {"role": "user", "content": [{"type": "thinking", "thinking": "d"}]}])";
  const std::string part = R"([{"type": "thinking", "thinking": "d"}];)";
  EXPECT_EQ(Rendered(chat->get(), messages), R"("a";"bc";"";)" + part);
  (*chat)->SetContentForm(kParts);
  EXPECT_EQ(Rendered(chat->get(), messages),
            R"([{"type": "text", "text": "a"}];[{"type": "text", "text": "b"}, )"
            R"({"type": "text", "text": "c"}];[];)" +
                part);
}

}  // namespace
}  // namespace minisgl
