// Reasoning and answers of many families of models, told apart through the whole program, and stop
// strings, schemas and bounds that hold for one of the two. The models write known texts.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "answers/run_program.h"
#include "answers/scripted_model.h"

namespace minisgl::answers {
namespace {

const std::vector<std::string> kHarmonyTokens = {"<|start|>",     "<|channel|>", "<|message|>",
                                                 "<|constrain|>", "<|call|>",    "<|end|>"};
const std::string kHarmonyTags = "<|start|>assistant<|channel|>final<|message|>";
const std::string kAnyObject =
    R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": )"
    R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], )"
    R"("additionalProperties": false}}})";

struct Told {
  std::string text, reasoning, finish_reason;
  int64_t reasoning_tokens = -1;
  std::string line;  // the whole row
};

std::string ThoughtField(const Json& row, const char* name) {
  const Json* field = row.Find(name);
  return field != nullptr && field->is_string() ? field->as_string() : "";
}

class ThoughtFormsTest : public ::testing::Test {
 protected:
  // The answer of a model to one row with these fields.
  static Told Ask(const ScriptedModel& model, const std::string& fields = "",
                  const std::vector<std::string>& options = {}) {
    const std::string rows = model.path() + "/rows.jsonl";
    std::ofstream(rows) << R"({"messages": [{"role": "user", "content": "Hi"}], )"
                        << R"("temperature": 0, "max_tokens": 60)" << (fields.empty() ? "" : ", ")
                        << fields << "}\n";
    std::vector<std::string> args = {"run", "-m", model.path(), "--file", rows, "--quiet"};
    args.insert(args.end(), options.begin(), options.end());
    const ProgramRun run = RunProgram(args);
    EXPECT_EQ(run.exit_code, 0) << run.err << run.out;
    const std::vector<Json> lines = run.Rows();
    if (lines.empty()) return {};
    const Json& row = lines.back();
    const Json* choices = row.Find("choices");
    const Json& answer = choices == nullptr ? row : choices->as_array().back();
    Told told = {ThoughtField(answer, "text"), ThoughtField(answer, "reasoning"),
                 ThoughtField(answer, "finish_reason"), -1, row.Dump()};
    const Json* usage = row.Find("usage");
    const Json* tokens = usage == nullptr ? nullptr : usage->Find("reasoning_tokens");
    if (tokens != nullptr) told.reasoning_tokens = tokens->as_int();
    return told;
  }

  static void Expect(const Told& told, const std::string& reasoning, const std::string& text) {
    EXPECT_EQ(told.reasoning, reasoning) << told.line;
    EXPECT_EQ(told.text, text) << told.line;
    EXPECT_EQ(told.finish_reason, "stop") << told.line;
  }

  // A model of words that are added tokens, with what its template is known by.
  static Script Words(const std::string& open, const std::string& close,
                      const std::vector<std::string>& tokens) {
    Script script;
    script.chat_template = ScriptTemplate(open + " " + close);
    script.tokens = tokens;
    script.added = {open, close};
    return script;
  }
  static Script Harmony(const std::vector<std::string>& tokens) {
    Script script;
    script.chat_template = ScriptTemplate(kHarmonyTags);
    script.tokens = tokens;
    script.special = kHarmonyTokens;
    script.end = "<|return|>";
    return script;
  }
};

const std::vector<std::string> kSum = {"<think>", "\n",   "First ", "check.",   "\n\n",
                                       "Then ",   "add.", "\n",     "</think>", "\n\n",
                                       "The ",    "sum ", "is ",    "4."};
const std::string kSumThought = "First check.\n\nThen add.";

TEST_F(ThoughtFormsTest, StopStringsAreLookedForInTheAnswer) {
  const ScriptedModel model(Words("<think>", "</think>", kSum));
  for (const char* fields :
       {R"("stop": ["\n\n"])", R"("stop": "\n\n", "n": 2)", R"("stop": ["\n\n"], "logprobs": 1)",
        R"("stop": ["check.", "add.", "</think>"])", R"("stop": ["\n\n"], "min_tokens": 3)",
        R"("stop": ["\n\n"], "skip_special_tokens": false)", R"("stop": ["zzz"])",
        R"("stop": ["4.\n\n", "\n\nThe"])"}) {
    SCOPED_TRACE(fields);
    Expect(Ask(model, fields), kSumThought, "The sum is 4.");
  }
  Expect(Ask(model, R"("stop": ["\n\n"])", {"--speculate", "ngram:4"}), kSumThought,
         "The sum is 4.");
  Expect(Ask(model, R"("stop": ["sum"])"), kSumThought, "The ");
  Expect(Ask(model, R"("stop": ["m is"], "include_stop_str_in_output": true)"), kSumThought,
         "The sum is");
  // The model's next words are the answer then.
  Expect(Ask(model, R"("stop": ["\n"], "thinking_token_budget": 3)"), "First check.", "Then add.");
}

TEST_F(ThoughtFormsTest, StreamedPiecesAreThoseOfTheRow) {
  const ScriptedModel model(Words("<think>", "</think>", kSum));
  Ask(model, R"("stop": ["\n\n", " is"])");
  const ProgramRun run = RunProgram(
      {"run", "-m", model.path(), "--file", model.path() + "/rows.jsonl", "--quiet", "--stream"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::string text, reasoning;
  for (const Json& line : run.Rows()) {
    text += ThoughtField(line, "delta");
    reasoning += ThoughtField(line, "reasoning_delta");
  }
  EXPECT_EQ(text, "The sum");
  EXPECT_EQ(reasoning, kSumThought);
}

TEST_F(ThoughtFormsTest, RowsOfTheServiceAndRawPromptsHaveStopsToo) {
  const ScriptedModel model(Words("<think>", "</think>", kSum));
  const std::string rows = model.path() + "/batch.jsonl";
  std::ofstream(rows)
      << R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": )"
      << R"({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, )"
      << R"("max_completion_tokens": 60, "stop": "\n\n"}})"
      << "\n"
      << R"({"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": )"
      << R"({"model": "m", "prompt": "Hi<|pre|><|go|>", "temperature": 0, "max_tokens": 60, )"
      << R"("stop": "\n\n"}})"
      << "\n";
  const ProgramRun run =
      RunProgram({"run", "-m", model.path(), "--file", rows, "--quiet", "--ordered"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find(R"("content": "The sum is 4.")"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find(R"("text": "<think>\nFirst check.")"), std::string::npos) << run.out;
}

TEST_F(ThoughtFormsTest, ASpecialTokenIsAStopString) {
  Script script;
  script.chat_template = ScriptTemplate("");
  script.tokens = {"Hel", "lo", ".", "<|im_end|>", "\n", "user ", "again"};
  script.special = {"<|im_end|>"};
  const ScriptedModel model(script);
  for (const char* fields :
       {R"("stop": "<|im_end|>")", R"("stop": ["x", "<|im_end|>"], "n": 2)",
        R"("stop": "<|im_end|>", "skip_special_tokens": false)",
        R"("stop": "<|im_end|>", "logprobs": 0)", R"("stop": "<|im_end|>", "min_tokens": 4)"}) {
    SCOPED_TRACE(fields);
    Expect(Ask(model, fields), "", "Hello.");
  }
  Expect(Ask(model, R"("stop": "<|im_end|>")", {"--speculate", "ngram:4"}), "", "Hello.");
  Expect(Ask(model, "", {"--stop", "<|im_end|>"}), "", "Hello.");
  for (const char* skip : {"true", "false"}) {
    SCOPED_TRACE(skip);
    Expect(Ask(model, R"("stop": "<|im_end|>", "include_stop_str_in_output": true, )"
                      R"("skip_special_tokens": )" +
                          std::string(skip)),
           "", "Hello.<|im_end|>");
  }
  Expect(Ask(model, R"("stop": "<|im_end|>", "min_tokens": 5)"), "", "Hello.\nuser again");
  Expect(Ask(model, R"("stop": "lo.<")"), "", "Hello.\nuser again");
}

// The token that ends a message of reasoning ends no answer, even if it is a stop string; a turn's
// end in the middle of a thought does.
TEST_F(ThoughtFormsTest, ASpecialTokenThatEndsAThoughtIsNoStop) {
  const ScriptedModel harmony(
      Harmony({"<|channel|>", "analysis", "<|message|>", "think", "<|end|>", "<|start|>",
               "assistant", "<|channel|>", "final", "<|message|>", "so", "<|end|>", "more"}));
  Expect(Ask(harmony, R"("stop": "<|end|>")"), "think", "so");
  Script script = Words("<think>", "</think>", {"<think>", "why", "<|im_end|>", "more"});
  script.special = {"<|im_end|>"};
  Expect(Ask(ScriptedModel(script), R"("stop": "<|im_end|>")"), "why", "");
}

TEST_F(ThoughtFormsTest, TheFinalChannelMayNameWhatItHolds) {
  const ScriptedModel model(Harmony({"<|channel|>", "analysis", "<|message|>", "think", "<|end|>",
                                     "<|start|>", "assistant", "<|channel|>", "final ",
                                     "<|constrain|>", "json", "<|message|>", "{\"a\":", "1", "}"}));
  Expect(Ask(model), "think", "{\"a\":1}");
  Expect(Ask(model, kAnyObject), "think", "{\"a\":1}");
  Expect(Ask(model, kAnyObject, {"--speculate", "ngram:4"}), "think", "{\"a\":1}");
  Expect(Ask(model, R"("skip_special_tokens": false)"), "think", "{\"a\":1}");
  EXPECT_EQ(Ask(model).reasoning_tokens, 1);
  EXPECT_EQ(Ask(model, kAnyObject).reasoning_tokens, 1);
}

// A control token is never spelled by bytes, whatever the pieces of the header are.
TEST_F(ThoughtFormsTest, MarksAreTokensAndNotSpelled) {
  const ScriptedModel model(Harmony(
      {"<|channel|>", "fin", "al ", "<|constrain|>", "json", "<|message|>", "{\"a\":", "1", "}"}));
  Expect(Ask(model), "", "{\"a\":1}");
  Expect(Ask(model, kAnyObject), "", "{\"a\":1}");
  // The model wants another channel than the schema needs, and text that spells the marks.
  const ScriptedModel spelled(
      Harmony({"<|channel|>", "analysis", "<|message|>", "<|",      "start",     "|>",
               "assistant",   "<|",       "channel",     "|>",      "final",     "<|",
               "message",     "|>",       "x",           "<|end|>", "<|start|>", "assistant",
               "<|channel|>", "final",    "<|message|>", "{\"a\":", "1",         "}"}));
  const std::string thought = "<|start|>assistant<|channel|>final<|message|>x";
  Expect(Ask(spelled), thought, "{\"a\":1}");
  Expect(Ask(spelled, kAnyObject), thought, "{\"a\":1}");
  Expect(Ask(spelled, R"("stop": "x")"), thought, "{\"a\":1}");
}

TEST_F(ThoughtFormsTest, APreambleIsNoAnswer) {
  const ScriptedModel model(
      Harmony({"<|channel|>", "commentary", "<|message|>", "I ", "look.", "<|end|>", "<|start|>",
               "assistant", "<|channel|>", "final", "<|message|>", "The answer."}));
  Expect(Ask(model), "I look.", "The answer.");
  Expect(Ask(model, R"("stop": "look")"), "I look.", "The answer.");
  EXPECT_EQ(Ask(model).reasoning_tokens, 2);
  const ScriptedModel both(
      Harmony({"<|channel|>", "analysis", "<|message|>", "Think.", "<|end|>", "<|start|>",
               "assistant", "<|channel|>", "commentary", "<|message|>", "I look.", "<|end|>",
               "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "The answer."}));
  Expect(Ask(both), "Think.\n\nI look.", "The answer.");
  EXPECT_EQ(Ask(both).reasoning_tokens, 2);
}

TEST_F(ThoughtFormsTest, ACallStaysText) {
  const ScriptedModel model(Harmony({"<|channel|>", "analysis", "<|message|>", "Call.", "<|end|>",
                                     "<|start|>", "assistant", "<|channel|>", "commentary to",
                                     "=f ", "<|constrain|>", "json", "<|message|>", "{}"}));
  Expect(Ask(model), "Call.", "<|channel|>commentary to=f <|constrain|>json<|message|>{}");
}

Script Gemma(const std::vector<std::string>& tokens, const std::string& behind = "") {
  Script script;
  script.chat_template = ScriptTemplate("<channel|>", behind);
  script.tokens = tokens;
  script.special = {"<|channel>", "<channel|>"};
  return script;
}

TEST_F(ThoughtFormsTest, AThoughtChannelIsAThoughtHoweverItWasOpened) {
  const ScriptedModel own(
      Gemma({"<|channel>", "thought\n", "Two.", "\n", "<channel|>", "It is ", "4."}));
  Expect(Ask(own), "Two.", "It is 4.");
  EXPECT_EQ(Ask(own).reasoning_tokens, 2);
  Expect(Ask(own, R"("stop": ["Two", "\n"])"), "Two.", "It is 4.");
  Expect(Ask(own, R"("skip_special_tokens": false)"), "Two.", "It is 4.");
  Expect(Ask(own, R"("thinking_token_budget": 0)"), "", "Two.\nIt is 4.");
  // The prompt spells words in bytes: so many tokens of the script are not written.
  const auto behind = [](size_t num_tokens, std::vector<std::string> tokens) {
    tokens.insert(tokens.begin(), num_tokens, ".");
    return tokens;
  };
  const ScriptedModel named(
      Gemma(behind(9, {"Two.", "<channel|>", "{\"a\":", "1", "}"}), "<|channel>thought\n"));
  const ScriptedModel unnamed(
      Gemma({".", "thought", "\n", "Two.", "<channel|>", "{\"a\":", "1", "}"}, "<|channel>"));
  for (const ScriptedModel* model : {&named, &unnamed}) {
    Expect(Ask(*model), "Two.", "{\"a\":1}");
    Expect(Ask(*model, kAnyObject), "Two.", "{\"a\":1}");
    EXPECT_EQ(Ask(*model).reasoning_tokens, 1);
  }
  Expect(Ask(ScriptedModel(Gemma({"<|channel>", "thought\n", "<channel|>", "4."}))), "", "4.");
  Expect(Ask(ScriptedModel(Gemma(behind(9, {"It is ", "4."}), "<|channel>thought<channel|>"))), "",
         "It is 4.");
}

TEST_F(ThoughtFormsTest, ABareClosingTokenEndsAThought) {
  const ScriptedModel model(Words("<think>", "</think>", {"rea", "son", "</think>", "ans", "wer"}));
  Expect(Ask(model), "reason", "answer");
  EXPECT_EQ(Ask(model).reasoning_tokens, 2);
  Expect(Ask(model, R"("n": 2)"), "reason", "answer");
  Expect(Ask(model, R"("stop": "w")"), "reason", "ans");
  // Text that spells the tag does not.
  const ScriptedModel spelled(
      Words("<think>", "</think>", {"The ", "</thi", "nk>", " tag", " closes."}));
  Expect(Ask(spelled), "", "The </think> tag closes.");
  // The prompt has closed the thought.
  Script closed = Words("<think>", "</think>", {".", ".", ".", ".", "a", "</think>", "b"});
  closed.chat_template = ScriptTemplate("</think>", "<think>\n\n</think>");
  Expect(Ask(ScriptedModel(closed)), "", "a</think>b");
}

TEST_F(ThoughtFormsTest, TagsAroundTheAnswerAreNoPartOfIt) {
  for (const auto& [open, close] :
       {std::pair("<answer>", "</answer>"), std::pair("<response>", "</response>")}) {
    Script script = Words(
        "<think>", "</think>",
        {"<think>", "why", "</think>", "\n", open, "\n", "{\"a\":", "1", "}", "\n", close, "\n"});
    script.chat_template = ScriptTemplate(std::string("</think>") + close);
    const ScriptedModel model(script);
    Expect(Ask(model), "why", "{\"a\":1}");
    Expect(Ask(model, kAnyObject), "why", "{\"a\":1}");
    Expect(Ask(model, R"("stop": "\n")"), "why", "{\"a\":1}");
  }
}

// Tags of other families; control tokens, added tokens and words.
TEST_F(ThoughtFormsTest, EveryFamilyHasItsTags) {
  struct Family {
    const char *open, *close;
    bool is_special;
  };
  for (const Family& family :
       {Family{"<seed:think>", "</seed:think>", false}, Family{"[THINK]", "[/THINK]", true},
        Family{"<|START_THINKING|>", "<|END_THINKING|>", true},
        Family{"<|inner_prefix|>", "<|inner_suffix|>", true},
        Family{"<thought>", "</thought>", false}, Family{"<reasoning>", "</reasoning>", false},
        Family{"<longcat_think>", "</longcat_think>", false},
        Family{"\u25c1think\u25b7", "\u25c1/think\u25b7", false},
        Family{"Here is my thought process:", "Here is my response:", false}}) {
    SCOPED_TRACE(family.open);
    Script script = Words(family.open, family.close,
                          {family.open, "\n", "why", "\n", family.close, "\n\n", "so"});
    if (family.is_special) std::swap(script.added, script.special);
    const ScriptedModel model(script);
    Expect(Ask(model, R"("stop": ["\n\n", "why"])"), "why", "so");
    script.added.clear();
    if (!family.is_special) Expect(Ask(ScriptedModel(script)), "why", "so");
  }
}

}  // namespace
}  // namespace minisgl::answers
