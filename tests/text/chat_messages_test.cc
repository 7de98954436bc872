// Messages whose text a template leaves out, and rules by which it may.
#include "minisgl/text/chat_messages.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "text_test_util.h"

namespace minisgl {
namespace {

// Counts the renderings of a template.
class CountingTemplate : public ChatTemplate {
 public:
  explicit CountingTemplate(const std::string& source) {
    auto chat = ChatTemplate::Parse(source, "t.jinja");
    EXPECT_TRUE(chat.ok()) << source << "\n" << chat.status().message();
    if (chat.ok()) chat_ = std::move(*chat);
    if (chat_ != nullptr) SetContentForm(chat_->content_form());
  }
  Result<std::vector<TextPiece>> Render(const ChatInput& input) const override {
    ++count;
    return chat_->Render(input);
  }

  mutable int count = 0;

 private:
  std::unique_ptr<ChatTemplate> chat_;
};

// Renders the messages and returns the check's message; the error if they are not rendered.
Status Checked(const ChatTemplate& chat, ChatInput input, const CheckedMessages& checked = {}) {
  const auto pieces = RenderMessages(chat, &input);
  if (!pieces.ok()) return pieces.status();
  return CheckNothingIsLeftOut(chat, input, *pieces, checked);
}

ChatInput InputOf(const std::string& messages) {
  ChatInput input;
  const auto json = ParseJson(messages);
  EXPECT_TRUE(json.ok()) << messages << "\n" << json.status().message();
  if (json.ok()) input.messages = *json;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  return input;
}

// The error of a conversation; "" if there is none.
std::string Error(const std::string& source, const std::string& messages) {
  const CountingTemplate chat(source);
  const Status status = Checked(chat, InputOf(messages));
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kBadInput);
  return status.message();
}

std::string Loop(const std::string& body) {
  return "{% for m in messages %}" + body + "{% endfor %}";
}

// Shows messages of the roles that most models know.
const std::string kThreeRoles = Loop(
    "{% if m.role == 'system' %}[{{ m.content }}]{% elif m.role == 'user' %}<{{ m.content }}>"
    "{% elif m.role == 'assistant' %}({{ m.content }}){% endif %}");

TEST(LeftOutTest, AMessageThatIsNowhereInThePromptIsNamed) {
  EXPECT_EQ(Error(kThreeRoles, R"([{"role": "user", "content": "a"},
                                   {"role": "developer", "content": "b"}])"),
            "messages[1] (role developer): the chat template leaves out its text; give it another "
            "role, or use another template with chat_template");
  EXPECT_EQ(Error(kThreeRoles, R"([{"role": "tool", "content": [{"type": "text", "text": "b"}]},
                                   {"role": "user", "content": "a"}])"),
            "messages[0] (role tool): the chat template leaves out its text; give it another "
            "role, or use another template with chat_template");
  EXPECT_NE(Error("fixed", R"([{"role": "user", "content": "a"}])"), "");
  // Text in the template or in another member does not count as the message's.
  EXPECT_NE(Error("fixed", R"([{"role": "user", "content": "fixed"}])"), "");
  EXPECT_NE(Error(Loop("{{ m.role }}"), R"([{"role": "user", "content": "user"}])"), "");
}

TEST(LeftOutTest, TheOtherFormIsAdvisedIfItHelps) {
  const std::string parts = Loop("{{ m.role }}: {% for p in m.content %}{{ p.text }}{% endfor %}");
  CountingTemplate chat(parts);
  const ChatInput input = InputOf(R"([{"role": "user", "content": "Hi"}])");
  EXPECT_TRUE(Checked(chat, input).ok());
  chat.SetContentForm(ContentForm::kString);
  EXPECT_EQ(Checked(chat, input).message(),
            "messages[0] (role user): the chat template leaves out its text; pass it in another "
            "form with template_content parts");
}

TEST(LeftOutTest, EachTextOfAContentIsLookedFor) {
  const std::string first = Loop("{{ m.content[0].text }}");
  EXPECT_EQ(Error(first, R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                            {"type": "text", "text": "b"}]}])"),
            "messages[0] (role user): the chat template leaves out text 2 of the 2 in its content; "
            "give it another role, or use another template with chat_template");
  EXPECT_EQ(Error(first, R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}])"), "");
}

TEST(LeftOutTest, MessagesBeforeTheFirstAreNotChecked) {
  const CountingTemplate chat(kThreeRoles);
  const ChatInput input = InputOf(R"([{"role": "x", "content": "a"}, {"role": "user", "content":
      "b"}, {"role": "y", "content": "c"}])");
  EXPECT_TRUE(Checked(chat, input).message().starts_with("messages[0] (role x)"));
  EXPECT_TRUE(Checked(chat, input, {1, -1}).message().starts_with("messages[1] (role y)"));
  EXPECT_TRUE(Checked(chat, input, {3, 0}).ok());
}

struct Rule {
  const char* name;
  std::string source;
  const char* messages;
};

TEST(LeftOutTest, TextThatATemplateRewritesOrDropsByARuleIsNoError) {
  const std::vector<Rule> rules = {
      {"nothing rendered", "", R"([{"role": "user", "content": "a"}])"},
      {"no text", Loop("x"),
       R"([{"role": "user", "content": " \n"}, {"role": "assistant", "content": null},
           {"role": "assistant", "tool_calls": []}, {"role": "user", "content": []}])"},
      {"trimmed", Loop("{{ m.content | trim }}"),
       "[{\"role\": \"user\", \"content\": \" \\u00a0 a b\\u3000\\n\"}]"},
      {"all of it trimmed", Loop("{{ m.content | trim }}"),
       "[{\"role\": \"user\", \"content\": \"\\u00a0\\u3000\"}]"},
      {"escaped", Loop("{{ m.content | tojson }}{{ m.content | e }}"),
       R"([{"role": "tool", "content": "{\"a\": \"<\"}\n"}])"},
      {"upper case", Loop("{{ m.content | upper }}"), R"([{"role": "user", "content": "a"}])"},
      {"cut", Loop("{{ m.content[:20] }}"), R"([{"role": "user", "content":
       "a text of more than twenty characters"}])"},
      {"marks removed", Loop("{{ m.content | replace('<|end|>', '') }}"),
       R"([{"role": "user", "content": "<|end|>"}, {"role": "user", "content": "a<|end|>b"}])"},
      {"thoughts", Loop("{{ m.content.split('</think>')[-1] }}"),
       R"([{"role": "user", "content": "a"}, {"role": "assistant", "content":
       "<think>b</think>"}, {"role": "assistant", "content": "<think>b</think>c"}])"},
      {"only the calls",
       Loop("{% if m.tool_calls %}{{ m.tool_calls }}{% else %}{{ m.content }}"
            "{% endif %}"),
       R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "Let me look.",
       "tool_calls": [{"name": "f"}]}])"},
      {"system with the last message of the user",
       "{% for m in messages if m.role != 'system' %}{% if loop.last and m.role == 'user' %}"
       "{{ messages[0].content }}{% endif %}{{ m.content }}{% endfor %}",
       R"([{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
       {"role": "assistant", "content": "b"}])"},
      {"the last message alone", "{{ messages[-1].content }}",
       R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
       {"role": "user", "content": "c"}])"},
      {"results of tools of the last turn",
       Loop("{% if m.role != 'tool' or loop.last %}{{ m.content }}{{ m.tool_calls }}{% endif %}"),
       R"([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [1]},
       {"role": "tool", "content": "12"}, {"role": "user", "content": "c"}])"},
      {"roles that must alternate",
       Loop("{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}"
            "{% endif %}{% if m.role == 'user' or loop.last %}{{ m.content }}{% endif %}"),
       R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
       {"role": "user", "content": "c"}])"},
      {"a content of a certain shape",
       Loop("{% if '|' not in m.content %}{{ raise_exception('no mark') }}{% endif %}"
            "{{ m.content.split('|')[0] }}"),
       R"([{"role": "user", "content": "a|b"}])"},
  };
  for (const Rule& rule : rules) EXPECT_EQ(Error(rule.source, rule.messages), "") << rule.name;
}

std::string ManyMessages(int count, const std::string& content, const std::string& role = "user") {
  std::string messages;
  for (int i = 0; i < count; ++i) {
    messages += std::string(i == 0 ? "[" : ",") + R"({"role": ")" + role + R"(", "content": ")" +
                content + std::to_string(i) + R"("})";
  }
  return messages + "]";
}

TEST(LeftOutTest, TextThatIsFoundCostsNoRendering) {
  CountingTemplate chat(kThreeRoles);
  EXPECT_TRUE(Checked(chat, InputOf(ManyMessages(1000, "text "))).ok());
  EXPECT_EQ(chat.count, 1);
}

TEST(LeftOutTest, AllTextThatIsRewrittenCostsOneRendering) {
  CountingTemplate chat(Loop("{{ m.content | upper }}"));
  EXPECT_TRUE(Checked(chat, InputOf(ManyMessages(1000, "text "))).ok());
  EXPECT_EQ(chat.count, 2);
}

TEST(LeftOutTest, MessagesOfManyHiddenKindsCostFewRenderings) {
  // Each is rendered as the last one only, so that all of them are tried.
  CountingTemplate chat("{{ messages[-1].content }}");
  std::string messages;
  for (int i = 0; i < 1000; ++i) {
    messages += std::string(i == 0 ? "[" : ",") + R"({"role": "role)" + std::to_string(i) +
                R"(", "content": "text )" + std::to_string(i) + R"("})";
  }
  EXPECT_TRUE(Checked(chat, InputOf(messages + "]")).ok());
  EXPECT_LE(chat.count, 2 + 8 * 5);
}

// Two of the templates leave out a message with a role that they do not know; without the start of
// an answer, one of them renders nothing at all.
TEST(LeftOutTest, KnownTemplatesLeaveOutUnknownRolesAlone) {
  if (!HasShared("templates/cases.jsonl")) {
    GTEST_SKIP() << "no " << SharedDir() << "/templates/cases.jsonl";
  }
  std::map<std::string, std::unique_ptr<CountingTemplate>> templates;
  int count = 0, num_left_out = 0;
  for (const Json& row : ReadRows(SharedDir() + "/templates/cases.jsonl")) {
    if (row.Find("expected") == nullptr) continue;
    const std::string name = row.Find("template")->as_string();
    auto& chat = templates[name];
    if (chat == nullptr) {
      chat = std::make_unique<CountingTemplate>(
          ReadBytes(SharedDir() + "/templates/" + name + ".jinja"));
    }
    ChatInput input = InputOf(row.Find("messages")->Dump());
    input.add_generation_prompt = row.Find("add_generation_prompt")->as_bool();
    if (const Json* tools = row.Find("tools")) input.tools = *tools;
    const Status status = Checked(*chat, input);
    ++count;
    if (status.ok()) continue;
    ++num_left_out;
    EXPECT_TRUE(status.message().starts_with("messages[0] (role wizard): ")) << status.message();
    EXPECT_TRUE(name == "granite-3.0-instruct" || name == "qwen2.5-instruct") << name;
  }
  EXPECT_GE(count, 400);
  EXPECT_EQ(num_left_out, 3);
}

// Text alone, as parts and as a string, in the models of shared/models/vision.
TEST(LeftOutTest, MultimodalTemplatesRenderAllText) {
  if (!HasShared("models/vision")) GTEST_SKIP() << "no " << SharedDir() << "/models/vision";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SharedDir() + "/models/vision")) {
    if (!entry.is_directory()) continue;
    const std::string dir = entry.path().string();
    const auto chat = ChatTemplate::Load(dir);
    ASSERT_TRUE(chat.ok() && *chat != nullptr) << dir;
    const auto tokenizer = Tokenizer::Load(dir);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    std::map<std::string, std::string> prompts;
    for (const Json& row : ReadRows(dir + "/answers.jsonl")) {
      prompts[row.Find("id")->as_string()] = row.Find("prompt")->as_string();
    }
    for (const Json& row : ReadRows(dir + "/prompts.jsonl")) {
      const std::string id = row.Find("id")->as_string();
      if (row.Dump().find("\"image") != std::string::npos) continue;
      for (const bool is_string : {false, true}) {
        ChatInput input;
        input.messages = *row.Find("messages");
        input.bos_token = (*tokenizer)->bos_token();
        input.eos_token = (*tokenizer)->eos_token();
        for (Json& message : input.messages.as_array()) {
          Json* const content = message.Find("content");
          if (!is_string || content->as_array().size() != 1) continue;
          *content = Json(*content->as_array()[0].Find("text"));
        }
        const auto pieces = RenderMessages(**chat, &input);
        ASSERT_TRUE(pieces.ok()) << id << ": " << pieces.status().message();
        EXPECT_EQ(Joined(*pieces), prompts[id]) << id;
        EXPECT_TRUE(CheckNothingIsLeftOut(**chat, input, *pieces).ok()) << id;
        ++count;
      }
    }
    for (const char* messages :
         {R"([{"role": "user", "content": " a\n"}])",
          R"([{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
              {"role": "assistant", "content": "b"}, {"role": "user", "content": "a"}])"}) {
      const Status status = Checked(**chat, InputOf(messages));
      EXPECT_TRUE(status.ok()) << dir << ": " << status.message();
    }
  }
  EXPECT_GE(count, 16);
}

}  // namespace
}  // namespace minisgl
