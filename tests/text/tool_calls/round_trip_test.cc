// Calls that a template renders read back as themselves, in the dialect that its source tells of.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/text/chat_messages.h"
#include "minisgl/text/chat_template.h"
#include "text/text_test_util.h"
#include "tool_call_cases.h"

namespace minisgl::round_trip {
namespace {

namespace fs = std::filesystem;

// Calls with keys in the order of the alphabet, in which some templates write them.
const std::vector<std::string> kArgumentsOfCalls = {
    R"({"city": "Oslo \"x\" \u00e9\ud83d\ude00", "days": 9007199254740993, "deep": {"a": {}, )"
    R"("b": [1.5, null, true]}, "empty": "", "list": [1, "two"], "text": "7"})",
    "{}",
    R"({"text": "<b>a</b> {[("})",
};

Json Tools() {
  return Json(Json::Array{ToolWithTypes("weather", {{"city", Json("string")},
                                                    {"days", Json("integer")},
                                                    {"deep", Json("object")},
                                                    {"empty", Json("string")},
                                                    {"list", Json("array")},
                                                    {"text", Json("string")}})});
}

std::string Id(size_t index) { return "functions.weather:" + std::to_string(index); }

Json Conversation(const std::vector<std::string>& arguments, const std::string& content,
                  bool short_ids) {
  Json user, assistant;
  user.Set("role", "user").Set("content", "Weather?");
  Json::Array calls;
  for (const std::string& text : arguments) {
    Json call, function;
    function.Set("name", "weather").Set("arguments", *ParseJson(text));
    const std::string id = short_ids ? "abcdefghi" : Id(calls.size());
    call.Set("id", id).Set("type", "function").Set("function", std::move(function));
    calls.push_back(std::move(call));
  }
  assistant.Set("role", "assistant").Set("content", content);
  assistant.Set("tool_calls", Json(std::move(calls)));
  return Json(Json::Array{std::move(user), std::move(assistant)});
}

std::string Rendered(const ChatTemplate& chat, Json messages, bool add_generation_prompt) {
  ChatInput input;
  input.messages = std::move(messages);
  input.add_generation_prompt = add_generation_prompt;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.tools = Tools();
  const auto pieces = RenderMessages(chat, &input);
  return pieces.ok() ? Joined(*pieces) : "";
}

// The answer that a template writes of a message, without its end; "" if it renders no calls.
std::string AnswerOf(const ChatTemplate& chat, const Json& messages) {
  const std::string whole = Rendered(chat, messages, false);
  const std::string prompt = Rendered(chat, Json(Json::Array{messages.as_array()[0]}), true);
  const size_t same = static_cast<size_t>(std::ranges::mismatch(whole, prompt).in1 - whole.begin());
  std::string answer = whole.substr(same);
  if (answer.ends_with('\n')) answer.pop_back();
  for (const std::string end : {"</s>", "<|im_end|>", "<|end_of_turn|>"}) {
    if (answer.ends_with(end)) answer.resize(answer.size() - end.size());
  }
  return answer.find("weather") == std::string::npos ? "" : answer;
}

// Returns false if the template renders no calls.
bool CheckRoundTrip(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& name) {
  const ToolDialect dialect = DetectToolDialect(chat, tokenizer);
  const bool short_ids = name.find("mistral") != std::string::npos;
  bool any = false;
  for (const std::string content : {"", "Let me look."}) {
    const Json messages = Conversation(kArgumentsOfCalls, content, short_ids);
    const std::string answer = AnswerOf(chat, messages);
    if (answer.empty()) continue;
    any = true;
    EXPECT_NE(dialect, ToolDialect::kNone) << name;
    const ToolCallPiece read = ReadSpelledToolCalls(dialect, Tools(), answer);
    // Some templates leave the content out of a message with calls.
    const bool has_content = answer.find(content) != std::string::npos;
    EXPECT_EQ(read.content, has_content ? content : "") << name << ": " << answer;
    EXPECT_EQ(read.calls.size(), kArgumentsOfCalls.size()) << name << ": " << answer;
    if (read.calls.size() != kArgumentsOfCalls.size()) continue;
    for (size_t i = 0; i < read.calls.size(); ++i) {
      const ToolCall& call = read.calls[i];
      EXPECT_EQ(call.name, "weather") << name;
      const auto arguments = ParseJson(call.arguments);
      EXPECT_TRUE(arguments.ok()) << name << ": " << call.arguments;
      if (!arguments.ok()) continue;
      EXPECT_EQ(arguments->Dump(), ParseJson(kArgumentsOfCalls[i])->Dump()) << name;
      if (!call.id.empty()) {
        EXPECT_EQ(call.id, short_ids ? "abcdefghi" : Id(i)) << name;
      }
    }
  }
  return any;
}

std::unique_ptr<Tokenizer> WrenTokenizer() {
  auto tokenizer = Tokenizer::Load(kWrenDir);
  return std::move(*tokenizer);
}

TEST(RoundTripTest, EachDialectsTemplate) {
  const auto tokenizer = WrenTokenizer();
  std::vector<ToolDialect> found;
  const fs::path folder = MINISGL_SOURCE_DIR "/tests/text/tool_calls/templates";
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    auto chat = ChatTemplate::Parse(ReadBytes(entry.path().string()), name);
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.status().message();
    const ToolDialect dialect = DetectToolDialect(**chat, *tokenizer);
    EXPECT_TRUE(name.starts_with(NameOf(dialect))) << name << ": " << NameOf(dialect);
    found.push_back(dialect);
    EXPECT_TRUE(CheckRoundTrip(**chat, *tokenizer, name)) << name;
  }
  for (const ToolDialectName& entry : ToolDialectNames()) {
    EXPECT_TRUE(std::ranges::count(found, entry.dialect) > 0) << entry.name;
  }
}

TEST(RoundTripTest, SharedTemplates) {
  if (!HasShared("templates")) GTEST_SKIP() << "no shared/templates";
  const auto tokenizer = WrenTokenizer();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(SharedDir() + "/templates")) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().stem().string();
    auto chat = ChatTemplate::Parse(ReadBytes(entry.path().string()), name);
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.status().message();
    if (CheckRoundTrip(**chat, *tokenizer, name)) names.push_back(name);
  }
  std::ranges::sort(names);
  const std::vector<std::string> expected = {"mistral-v11", "mistral-v11_think", "mistral-v13",
                                             "qwen2.5-instruct"};
  EXPECT_EQ(names, expected);
}

TEST(RoundTripTest, ATemplateWithoutCallsHasNoDialect) {
  const auto tokenizer = WrenTokenizer();
  auto chat = ChatTemplate::Parse("{% for m in messages %}{{ m.content }}{% endfor %}", "t");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(DetectToolDialect(**chat, *tokenizer), ToolDialect::kNone);
}

// The vocabulary decides if a template reads tools, but writes no calls.
TEST(RoundTripTest, AVocabularyWithMarksTellsOfADialect) {
  const auto tokenizer = LoadTokenizer(MINISGL_SOURCE_DIR "/tests/text/tokenizers/spm-prepend");
  const auto detect = [&](const std::string& source) {
    auto chat = ChatTemplate::Parse(source, "t");
    EXPECT_TRUE(chat.ok());
    return DetectToolDialect(**chat, *tokenizer);
  };
  EXPECT_EQ(detect("{{ tools | tojson }}{{ messages[0].content }}"), ToolDialect::kMistralV3);
  EXPECT_EQ(detect("{{ messages[0].content }}"), ToolDialect::kNone);
  EXPECT_EQ(detect("{{ tools | tojson }}<tool_call>"), ToolDialect::kHermes);
}

// Other marks are ordinary text of these tokenizers.
TEST(RoundTripTest, ControlTokensAmongMarksAreKept) {
  const auto tokenizer = LoadTokenizer(MINISGL_SOURCE_DIR "/tests/text/tokenizers/spm-prepend");
  const std::vector<TokenId> expected = {*tokenizer->IdOf("[TOOL_CALLS]")};
  EXPECT_EQ(ToolCallTokens(ToolDialect::kMistralV3, *tokenizer), expected);
  EXPECT_EQ(ToolCallTokens(ToolDialect::kMistral, *tokenizer), expected);
  EXPECT_TRUE(ToolCallTokens(ToolDialect::kHermes, *tokenizer).empty());
  EXPECT_TRUE(ToolCallTokens(ToolDialect::kNone, *tokenizer).empty());
  const auto o200k = LoadTokenizer(MINISGL_SOURCE_DIR "/tests/text/tokenizers/o200k");
  EXPECT_EQ(ToolCallTokens(ToolDialect::kHarmony, *o200k).size(), 3u);
}

}  // namespace
}  // namespace minisgl::round_trip
