// Calls of tools through the whole program: read in answers to rows, streamed, said in sessions,
// resumed, and forced. The models write known texts, except the demo model.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "answers/run_program.h"
#include "answers/schedule_settings.h"
#include "answers/scripted_model.h"
#include "long_form.h"
#include "minisgl/grammar/json_schema.h"
#include "minisgl/grammar/matcher.h"
#include "minisgl/text/tool_calls.h"
#include "slow.h"

namespace minisgl::answers {
namespace {

// Writes calls as the models of the dialect hermes do.
const std::string kCallTemplate =
    "{% if tools %}T{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]<|pre|><|go|>{% endif %}";
const std::string kTools =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", )"
    R"("properties": {"n": {"type": "integer"}}, "required": ["n"], )"
    R"("additionalProperties": false}}}])";
const std::vector<std::string> kCallTokens = {
    "<tool_call>", "\n", "{\"name\": \"f\"", ", ", "\"arg", "uments\"", ": {\"n\"", ": ", "41",
    "}}",          "\n", "</tool_call>"};

class ToolRowsTest : public ::testing::Test {
 protected:
  // `is_control`: the marks of calls are control tokens.
  static Script Caller(std::vector<std::string> tokens, bool is_control) {
    Script script;
    script.chat_template = kCallTemplate;
    script.tokens = std::move(tokens);
    (is_control ? script.special : script.added) = {"<tool_call>", "</tool_call>"};
    return script;
  }
  static std::string Row(const std::string& fields, const std::string& content = "Hi") {
    return R"({"messages": [{"role": "user", "content": ")" + content +
           R"("}], "temperature": 0, "max_tokens": 60)" + (fields.empty() ? "" : ", ") + fields +
           "}\n";
  }
  static ProgramRun RunRows(const ScriptedModel& model, const std::string& rows,
                            const std::vector<std::string>& options = {}) {
    const std::string file = model.path() + "/rows.jsonl";
    std::ofstream(file) << rows;
    std::vector<std::string> args = {"run", "-m", model.path(), "--file", file, "--quiet"};
    args.insert(args.end(), options.begin(), options.end());
    return RunProgram(args);
  }
  static Json Ask(const ScriptedModel& model, const std::string& fields,
                  const std::vector<std::string>& options = {}) {
    const ProgramRun run = RunRows(model, Row(fields), options);
    EXPECT_EQ(run.exit_code, 0) << run.err << run.out;
    const std::vector<Json> rows = run.Rows();
    return rows.empty() ? Json() : rows.back();
  }
  static std::string Member(const Json& row, const char* name) {
    const Json* const field = row.Find(name);
    return field == nullptr ? "" : field->is_string() ? field->as_string() : field->Dump();
  }
  // The functions and arguments of the calls of a row or a choice, as text.
  static std::string CallsOf(const Json& row) {
    const Json* const calls = row.Find("tool_calls");
    std::string text;
    if (calls == nullptr || !calls->is_array()) return text;
    for (const Json& call : calls->as_array()) {
      const Json* const function = call.Find("function");
      text += Member(*function, "name") + Member(*function, "arguments") + ";";
    }
    return text;
  }
};

std::vector<std::string> Behind(std::vector<std::string> before,
                                const std::vector<std::string>& after) {
  before.insert(before.end(), after.begin(), after.end());
  return before;
}

TEST_F(ToolRowsTest, CallsAreReadWhateverTheirMarksAre) {
  for (const bool is_control : {false, true}) {
    SCOPED_TRACE(is_control);
    const ScriptedModel model(Caller(Behind({"I ", "look."}, kCallTokens), is_control));
    const Json row = Ask(model, kTools);
    EXPECT_EQ(CallsOf(row), R"(f{"n": 41};)");
    EXPECT_EQ(Member(row, "text"), "I look.");
    EXPECT_EQ(Member(row, "finish_reason"), "tool_calls");
    const Json as_text = Ask(model, kTools, {"--tool-dialect", "none"});
    EXPECT_EQ(CallsOf(as_text), "");
    EXPECT_EQ(Member(as_text, "finish_reason"), "stop");
    const Json untold = Ask(model, "");
    EXPECT_EQ(Member(untold, "text"), Member(as_text, "text")) << "the text of a row without tools";
    const Json logprobs = Ask(model, kTools + R"(, "n": 2, "logprobs": 1)");
    for (const Json& choice : logprobs.Find("choices")->as_array()) {
      EXPECT_EQ(CallsOf(choice), R"(f{"n": 41};)");
      EXPECT_NE(choice.Find("logprobs"), nullptr);
    }
  }
}

TEST_F(ToolRowsTest, AThoughtComesBeforeCallsAndHoldsNone) {
  Script script = Caller(Behind({"<think>", "<tool_call>", "so", "</think>"}, kCallTokens), false);
  script.chat_template += "{# <think></think> #}";
  script.added.push_back("<think>");
  script.added.push_back("</think>");
  const Json row = Ask(ScriptedModel(script), kTools);
  EXPECT_EQ(CallsOf(row), R"(f{"n": 41};)");
  EXPECT_EQ(Member(row, "reasoning"), "<tool_call>so");
  EXPECT_EQ(Member(row, "text"), "");
}

TEST_F(ToolRowsTest, AnAnswerThatIsCutHasItsCallsAndTheRestAsText) {
  const ScriptedModel model(Caller(Behind(kCallTokens, kCallTokens), false));
  const Json whole = Ask(model, kTools);
  EXPECT_EQ(CallsOf(whole), R"(f{"n": 41};f{"n": 41};)");
  const ProgramRun run =
      RunRows(model, R"({"messages": [{"role": "user", "content": "a"}], "temperature": 0, )" +
                         kTools + R"(, "max_tokens": 15})");
  const Json row = run.Rows().at(0);
  EXPECT_EQ(CallsOf(row), R"(f{"n": 41};)");
  EXPECT_EQ(Member(row, "finish_reason"), "length");
  EXPECT_EQ(Member(row, "text"), "<tool_call>\n{\"name\": \"f\"");
}

TEST_F(ToolRowsTest, StreamedPiecesAreThoseOfTheRow) {
  const ScriptedModel model(Caller(Behind({"I ", "look.", "\n"}, kCallTokens), true));
  const ProgramRun run = RunRows(model, Row(kTools) + Row(kTools + R"(, "n": 2)"), {"--stream"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::string text, calls;
  int num_deltas = 0;
  for (const Json& line : run.Rows()) {
    if (*line.Find("index") != Json(0)) continue;
    text += Member(line, "delta");
    if (line.Find("tool_calls_delta") != nullptr) ++num_deltas;
    if (line.Find("tool_calls") != nullptr) calls = Member(line, "tool_calls");
  }
  EXPECT_EQ(text, "I look.");
  EXPECT_EQ(num_deltas, 1);
  EXPECT_NE(run.out.find("\"tool_calls_delta\": " + calls), std::string::npos) << run.out;
}

TEST_F(ToolRowsTest, ASessionGoesOnWithCallsAndIsResumed) {
  const ScriptedModel model(Caller(Behind({"I look."}, kCallTokens), true));
  const std::string first = R"({"session": "s", "id": 1, "temperature": 0, "messages": )"
                            R"([{"role": "user", "content": "q"}], )" +
                            kTools + "}\n";
  const std::string second = R"({"session": "s", "id": 2, "temperature": 0, "messages": )"
                             R"([{"role": "tool", "content": "7"}], )" +
                             kTools + "}\n";
  const std::string output = model.path() + "/out.jsonl";
  const ProgramRun whole = RunRows(model, first + second, {"-o", output});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto read = [&output] {
    std::ifstream file(output);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string both = read();
  EXPECT_EQ(std::count(both.begin(), both.end(), '\n'), 2);
  EXPECT_NE(both.find("\"finish_reason\": \"tool_calls\""), std::string::npos) << both;
  // The second answer was lost.
  std::ofstream(output) << both.substr(0, both.find('\n') + 1);
  const ProgramRun resumed = RunRows(model, first + second, {"-o", output, "--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const auto without_cached = [](std::string rows) {
    for (size_t at = 0; (at = rows.find("\"cached_tokens\": ", at)) != std::string::npos; ++at) {
      rows.erase(at, rows.find(',', at) - at);
    }
    return rows;
  };
  EXPECT_EQ(without_cached(read()), without_cached(both));
  const ProgramRun other =
      RunRows(model, first + second, {"-o", output, "--resume", "--tool-dialect", "none"});
  EXPECT_EQ(other.exit_code, 73) << other.err;
  EXPECT_NE(other.err.find("--tool-dialect"), std::string::npos) << other.err;
}

TEST_F(ToolRowsTest, ARequiredCallComesWhateverTheModelWouldSay) {
  for (const bool is_control : {false, true}) {
    SCOPED_TRACE(is_control);
    const ScriptedModel model(Caller({"I ", "will ", "not ", "call."}, is_control));
    const Json free = Ask(model, kTools);
    EXPECT_EQ(Member(free, "text"), "I will not call.");
    for (const char* choice : {R"("required")", R"({"type": "function", "name": "f"})"}) {
      for (const std::vector<std::string>& options :
           {std::vector<std::string>{}, {"--speculate", "ngram:4"}}) {
        const std::string row = R"({"messages": [{"role": "user", "content": "a"}], )" + kTools +
                                R"(, "temperature": 1.5, "seed": 3, "max_tokens": 200, )" +
                                R"("tool_choice": )" + choice + "}\n";
        const Json forced = RunRows(model, row, options).Rows().at(0);
        const std::string calls = CallsOf(forced);
        EXPECT_TRUE(calls.starts_with("f{")) << forced.Dump();
        EXPECT_NE(calls.find("\"n\""), std::string::npos) << forced.Dump();
        EXPECT_EQ(Member(forced, "text"), "") << forced.Dump();
      }
    }
  }
}

TEST_F(ToolRowsTest, AStrictFunctionHasItsSchemaAndTextIsFree) {
  std::string strict = kTools;
  strict.replace(strict.find("\"parameters\""), 0, "\"strict\": true, ");
  const ScriptedModel speaker(Caller({"I ", "will ", "not ", "call."}, true));
  EXPECT_EQ(Member(Ask(speaker, strict), "text"), "I will not call.");
  std::vector<std::string> wrong = kCallTokens;
  std::replace(wrong.begin(), wrong.end(), std::string("41"), std::string("\"x\""));
  const ScriptedModel caller(Caller(wrong, true));
  EXPECT_EQ(CallsOf(Ask(caller, kTools)), R"(f{"n": "x"};)");
  const Json row = RunRows(caller, R"({"messages": [{"role": "user", "content": "a"}], )" + strict +
                                       R"(, "temperature": 1, "max_tokens": 200})"
                                       "\n")
                       .Rows()
                       .at(0);
  EXPECT_TRUE(CallsOf(row).starts_with("f{\"n\": ")) << row.Dump();
  EXPECT_EQ(CallsOf(row).find("\"x\""), std::string::npos) << row.Dump();
}

TEST_F(ToolRowsTest, ChecksAndPlansFindWhatCannotBeEnforced) {
  const ScriptedModel model(Caller({"a"}, false));
  const std::string bad =
      R"("tools": [{"name": "look", "parameters": {"type": "object", "properties": {"a": )"
      R"({"type": "string", "pattern": "("}}}}], "tool_choice": "required")";
  const ProgramRun check = RunRows(model, Row(bad) + Row(kTools), {"--check"});
  EXPECT_EQ(check.exit_code, 65) << check.err;
  EXPECT_NE((check.out + check.err).find("the function look: "), std::string::npos)
      << check.out << check.err;
  const ProgramRun run = RunRows(model, Row(bad));
  const std::vector<Json> rows = run.Rows();
  const Json* const error = rows.at(0).Find("error");
  ASSERT_NE(error, nullptr) << run.out;
  EXPECT_EQ(Member(*error, "code"), "invalid_grammar");
  EXPECT_EQ(Member(*error, "field"), "tool_choice");
  EXPECT_TRUE(Member(*error, "message").starts_with("the function look: ")) << run.out;
  const ProgramRun plan = RunProgram({"plan", "-m", model.path(), model.path() + "/rows.jsonl"});
  EXPECT_NE((plan.out + plan.err).find("the function look: "), std::string::npos)
      << plan.out << plan.err;
}

TEST_F(ToolRowsTest, CallsOfChannelsAreReadAndForced) {
  Script script;
  script.chat_template = ScriptTemplate("<|start|>assistant<|channel|>final<|message|>");
  script.special = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"};
  script.end = "<|call|>";
  const std::vector<std::string> thought = {"<|channel|>", "analysis",  "<|message|>", "why",
                                            "<|end|>",     "<|start|>", "assistant"};
  script.tokens = Behind(thought, {"<|channel|>", "commentary", " to=functions.f ", "<|constrain|>",
                                   "json", "<|message|>", "{\"n\": ", "41", "}"});
  const Json row = Ask(ScriptedModel(script), kTools);
  EXPECT_EQ(CallsOf(row), R"(f{"n": 41};)") << row.Dump();
  EXPECT_EQ(Member(row, "reasoning"), "why");
  EXPECT_EQ(Member(row, "finish_reason"), "tool_calls");
  script.tokens = Behind(thought, {"<|channel|>", "final", "<|message|>", "So."});
  EXPECT_EQ(Member(Ask(ScriptedModel(script), kTools), "text"), "So.");
  script.tokens = Behind(thought, {"<|channel|>", "commentary", " to=functions.g ", "<|message|>"});
  const ScriptedModel other(script);
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{}, {"--speculate", "ngram:4"}}) {
    const std::string row =
        R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 300, )"
        R"("temperature": 0, "tool_choice": "required", )" +
        kTools + "}\n";
    const Json forced = RunRows(other, row, options).Rows().at(0);
    EXPECT_TRUE(CallsOf(forced).starts_with("f{")) << forced.Dump();
    EXPECT_EQ(Member(forced, "reasoning"), "why") << forced.Dump();
  }
}

// Schemas of arguments, each with every kind of value, that end soon whatever a model says.
const char* const kForcedSchemas[] = {
    R"({"type": "object", "properties": {"n": {"type": "integer", "minimum": -5, "maximum": 99}, )"
    R"("unit": {"enum": ["C", "F"]}}, "required": ["n", "unit"], "additionalProperties": false})",
    R"({"type": "object", "properties": {"ok": {"type": "boolean"}, "names": {"type": "array", )"
    R"("items": {"type": "string", "maxLength": 6}, "maxItems": 3}}, "required": ["names"], )"
    R"("additionalProperties": false})",
    R"({"type": "object", "properties": {"at": {"type": "object", "properties": {"x": )"
    R"({"type": ["null", "integer"], "minimum": 0, "maximum": 9}}, "required": ["x"], )"
    R"("additionalProperties": false}}, "additionalProperties": false})",
};

class ForcedCallsTest : public ToolRowsTest {
 protected:
  void SetUp() override {
    for (const char* schema : kForcedSchemas) {
      auto compiled = CompileJsonSchema(schema);
      ASSERT_TRUE(compiled.ok()) << compiled.status().message();
      schemas_.push_back(*compiled);
    }
  }

  // The number of calls in a row whose answer must be calls, each by its schema.
  int CountBySchema(const Json& row) const {
    const Json* const calls = row.Find("tool_calls");
    EXPECT_NE(calls, nullptr) << row.Dump();
    EXPECT_EQ(Member(row, "text"), "") << row.Dump();
    int count = 0;
    for (const Json& call : calls == nullptr ? Json::Array() : calls->as_array()) {
      const Json& function = *call.Find("function");
      const auto index = static_cast<size_t>(Member(function, "name").back() - '0');
      bool accepted = false;
      if (index < schemas_.size()) {
        MatchText(*schemas_[index], Member(function, "arguments"), &accepted);
      }
      EXPECT_TRUE(accepted) << row.Dump();
      ++count;
    }
    return count;
  }

  static std::string ForcedRows(int count) {
    std::string tools, rows;
    for (const char* const& schema : kForcedSchemas) {
      tools += std::string(tools.empty() ? "" : ", ") + R"({"type": "function", "function": )" +
               R"({"name": "tool)" + std::to_string(&schema - kForcedSchemas) +
               R"(", "parameters": )" + schema + "}}";
    }
    for (int i = 0; i < count; ++i) {
      const std::string choice = i % 3 == 0 ? R"("required")"
                                            : R"({"type": "function", "function": {"name": "tool)" +
                                                  std::to_string(i % 2 + 1) + "\"}}";
      rows += R"({"id": )" + std::to_string(i) + R"(, "messages": [{"role": "user", "content": )" +
              R"("Call number )" + std::to_string(i) + R"("}], "temperature": 1.5, )" +
              R"("max_tokens": 250, "parallel_tool_calls": )" + (i % 4 == 0 ? "true" : "false") +
              R"(, "tools": [)" + tools + R"(], "tool_choice": )" + choice + "}\n";
    }
    return rows;
  }

  std::vector<std::shared_ptr<const CompiledGrammar>> schemas_;
};

TEST_F(ForcedCallsTest, EveryForcedCallIsByItsSchemaUnderEverySchedule) {
  MarkSlow("the demo model answers rows of a high temperature, under several schedules");
  const int count = ShortOrLong(24, 500);
  const std::string file = testing::TempDir() + "/forced.jsonl";
  std::ofstream(file) << ForcedRows(count);
  std::vector<std::string> first;
  for (const Setting& setting : Settings()) {
    std::vector<std::string> args = {"run", "-m",        DemoModel(),      "--file", file,
                                     "-q",  "--ordered", "--tool-dialect", "hermes"};
    const std::vector<std::string> more = setting.Args();
    args.insert(args.end(), more.begin(), more.end());
    const ProgramRun run = RunProgram(args);
    ASSERT_TRUE(IsAnswered(run)) << setting.Name() << run.err;
    const std::vector<Json> rows = run.Rows();
    if (!first.empty()) {
      EXPECT_EQ(Comparable(rows), first) << setting.Name();
      continue;
    }
    first = Comparable(rows);
    ASSERT_EQ(std::ssize(rows), count);
    int num_calls = 0;
    for (const Json& row : rows) {
      if (Member(row, "finish_reason") != "length") num_calls += CountBySchema(row);
    }
    EXPECT_GE(num_calls, count * 9 / 10);
  }
}

TEST_F(ForcedCallsTest, EveryDialectIsForcedAndRead) {
  MarkSlow("the demo model answers rows in every dialect");
  const int count = ShortOrLong(4, 60);
  const std::string file = testing::TempDir() + "/dialects.jsonl";
  std::ofstream(file) << ForcedRows(count);
  for (const ToolDialectName& known : ToolDialectNames()) {
    const std::string name(known.name);
    const ProgramRun run = RunProgram(
        {"run", "-m", DemoModel(), "--file", file, "-q", "--ordered", "--tool-dialect", name});
    ASSERT_TRUE(IsAnswered(run)) << name << run.err;
    int num_calls = 0;
    for (const Json& row : run.Rows()) {
      if (Member(row, "finish_reason") != "length") num_calls += CountBySchema(row);
    }
    EXPECT_GE(num_calls, count / 2) << name << "\n" << run.out;
  }
}

}  // namespace
}  // namespace minisgl::answers
