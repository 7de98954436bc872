// Reasoning before an answer under a grammar, through the whole program: the demo model with its
// full stop as the end of a thought, which its template opens.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "answers/run_program.h"
#include "answers/schedule_settings.h"
#include "minisgl/grammar/matcher.h"
#include "runtime/renamed_wren.h"

namespace minisgl::answers {
namespace {

const std::string kPerson =
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "age"], "additionalProperties": false})";
const std::string kRegex = "[a-z]{3,5}-[0-9]{2}";

// The template opens the thought if `opens`, or leaves it to the model.
void WriteConfig(const std::string& model, bool opens) {
  const std::filesystem::path config = std::filesystem::path(model) / "tokenizer_config.json";
  std::filesystem::remove(config);  // a link
  std::ofstream(config)
      << R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "bos_token": "<s>",)"
      << R"( "eos_token": "</s>", "unk_token": "<unk>", "legacy": false, "chat_template": ")"
      << R"({{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n)"
      << R"({% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %})"
      << R"({{ m.content }}{{ eos_token }}\n{% endfor %})"
      << R"({% if add_generation_prompt %}<|assistant|>\n)" << (opens ? "<think>" : "")
      << R"({% endif %}"})";
}

class ThoughtsProgramTest : public ::testing::Test {
 protected:
  ThoughtsProgramTest() : model_({{500, "<think>"}, {1986, "</think>"}}) {
    WriteConfig(model_.path(), /*opens=*/true);
    rows_ = model_.path() + "/rows.jsonl";
    std::ofstream rows(rows_);
    for (int i = 0; i < 4; ++i) {
      const auto add = [&](const std::string& more) {
        rows << R"({"messages": [{"role": "user", "content": "Victor lives in Havana"}], )"
             << R"("max_tokens": 90, "temperature": 0.9, "logit_bias": {"1986": 3}, "seed": )" << i
             << ", " << more << "}\n";
      };
      std::string schema = kPerson;
      std::erase(schema, '\n');
      add(R"("structured_outputs": {"json": )" + schema + "}");
      add(R"("n": 2, "structured_outputs": {"regex": ")" + kRegex + "\"}");
      add(R"("stop": ["-"], "structured_outputs": {"regex": ")" + kRegex + "\"}");
      add(R"("structured_outputs": {"choice": ["yes", "no"]})");
    }
  }

  std::vector<std::string> Run(const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"run", "-m", model_.path(), "--file", rows_, "--quiet"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }

  const RenamedWren model_;
  std::string rows_;
};

bool Matches(const GrammarText& grammar, const std::string& text) {
  bool accepted = false;
  MatchText(*CompileGrammar(grammar).value(), text, &accepted);
  return accepted;
}

std::string TextOf(const Json& answer, const char* field) {
  const Json* text = answer.Find(field);
  return text == nullptr ? "" : text->as_string();
}

std::vector<std::string> RowsOf(const std::string& path) {
  std::ifstream in(path);
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(ParseJson(line).value());
  return Comparable(rows);
}

TEST_F(ThoughtsProgramTest, TheTextBehindAThoughtIsThatOfTheGrammar) {
  const ProgramRun run = RunProgram(Run({}));
  ASSERT_TRUE(IsAnswered(run)) << run.err;
  const std::vector<Json> rows = run.Rows();
  ASSERT_EQ(rows.size(), 16u);
  int num_whole = 0;
  for (const Json& row : rows) {
    const int64_t kind = row.Find("index")->as_int() % 4;
    const Json* choices = row.Find("choices");
    ASSERT_EQ(choices != nullptr, kind == 1) << row.Dump();
    for (const Json& answer : choices == nullptr ? Json::Array{row} : choices->as_array()) {
      const std::string text = TextOf(answer, "text"), thought = TextOf(answer, "reasoning");
      EXPECT_EQ((text + thought).find("think>"), std::string::npos) << answer.Dump();
      EXPECT_FALSE(thought.empty()) << answer.Dump();
      if (TextOf(answer, "finish_reason") == "length") {
        EXPECT_NE(row.Find("warnings"), nullptr) << answer.Dump();
        continue;
      }
      ++num_whole;
      if (kind == 0) {
        EXPECT_TRUE(Matches({GrammarKind::kJsonSchema, kPerson, {}}, text)) << text;
      } else if (kind == 3) {
        EXPECT_TRUE(text == "yes" || text == "no") << text;
      } else {
        const char* behind = kind == 2 ? "-12" : "";  // a stop string cuts it
        EXPECT_TRUE(Matches({GrammarKind::kRegularExpression, kRegex, {}}, text + behind)) << text;
      }
    }
  }
  EXPECT_GE(num_whole, 12);
}

TEST_F(ThoughtsProgramTest, RowsAreTheSameUnderSchedulesAndAfterAResume) {
  ExpectIdenticalRows(
      model_.path(), rows_,
      {{16, 512, 64, 2, "radix", true, "mixed", "optimistic", "priority", 0, 0},
       {1, 32, 3, 1, "radix", false, "mixed", "reserve", "fcfs", SmallestPool(1), 5},
       {64, 8192, 5, 2, "naive", true, "prefill-first", "optimistic", "priority", 0, 3}});
  const std::string output = model_.path() + "/out.jsonl", whole = model_.path() + "/whole.jsonl";
  const int exit_code = RunProgram(Run({"-o", whole})).exit_code;
  EXPECT_LE(exit_code, 1) << "an answer may be cut";
  std::ifstream in(whole);
  std::ofstream half(output);
  std::string line;
  for (int i = 0; i < 6 && std::getline(in, line); ++i) half << line << "\n";
  half.close();
  std::filesystem::copy_file(whole + ".meta", output + ".meta");
  const ProgramRun resumed = RunProgram(Run({"-o", output, "--resume"}));
  EXPECT_EQ(resumed.exit_code, exit_code) << resumed.err;
  EXPECT_EQ(RowsOf(output), RowsOf(whole));
}

// Rows with budgets, alone and with what else an answer may have.
std::vector<int64_t> WriteBudgets(const std::string& path, const std::string& bias) {
  std::vector<int64_t> budgets;
  std::ofstream rows(path);
  for (const int64_t budget : {0, 1, 2, 7, 30}) {
    const auto add = [&](const std::string& more) {
      rows << R"({"messages": [{"role": "user", "content": "Victor lives in Havana"}], )"
           << R"("max_tokens": 60, "temperature": 0.9, "seed": )" << budgets.size()
           << R"(, "logit_bias": )" << bias << R"(, "thinking_token_budget": )" << budget << more
           << "}\n";
      budgets.push_back(budget);
    };
    add("");
    add(R"(, "n": 3, "ignore_eos": true, "return_token_ids": true)");
    add(R"(, "ignore_eos": true, "logprobs": 1, "return_token_ids": true)");
    add(R"(, "structured_outputs": {"regex": ")" + kRegex + "\"}");
    add(R"(, "reasoning_budget_message": "\n I must answer now.\n")");
    add(R"(, "stop": ["-"], "n": 2, "structured_outputs": {"regex": ")" + kRegex + "\"}");
  }
  return budgets;
}

TEST_F(ThoughtsProgramTest, AThoughtHasAtMostItsBudget) {
  const std::string path = model_.path() + "/budgets.jsonl";
  const std::vector<int64_t> budgets = WriteBudgets(path, R"({"1986": -3})");
  const std::string summary = model_.path() + "/summary.json";
  const ProgramRun run =
      RunProgram({"run", "-m", model_.path(), "--file", path, "--summary", summary, "--ordered"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::vector<Json> rows = run.Rows();
  ASSERT_EQ(rows.size(), budgets.size());
  int64_t sum = 0;
  int num_forced = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t thought = rows[i].Find("usage")->Find("reasoning_tokens")->as_int();
    sum += thought;
    const Json* choices = rows[i].Find("choices");
    const auto count = choices == nullptr ? 1 : std::ssize(choices->as_array());
    constexpr int64_t kMessageMax = 20;
    EXPECT_LE(thought, count * budgets[i] + (i % 6 == 4 && budgets[i] > 0 ? kMessageMax : 0));
    num_forced += thought == count * budgets[i] ? 1 : 0;
    if (i % 6 == 4) {
      const std::string reasoning = TextOf(rows[i], "reasoning");
      const bool spent = thought > budgets[i];
      EXPECT_EQ(reasoning.ends_with("I must answer now."), spent) << reasoning;
    }
    if (i % 6 == 3 && TextOf(rows[i], "finish_reason") != "length") {
      EXPECT_TRUE(Matches({GrammarKind::kRegularExpression, kRegex, {}}, TextOf(rows[i], "text")));
    }
    if (i % 6 != 2) continue;
    // The log-probability of a forced token is the model's own.
    const auto& content = rows[i].Find("logprobs")->Find("content")->as_array();
    const auto close = std::find_if(content.begin(), content.end(), [](const Json& token) {
      return *token.Find("id") == Json(1986);
    });
    ASSERT_NE(close, content.end());
    EXPECT_LT(close->Find("logprob")->as_double(), -0.001);
    EXPECT_EQ(close - content.begin(), thought);
  }
  EXPECT_GE(num_forced, 12);
  std::ifstream in(summary);
  const Json figures = ParseJson(std::string(std::istreambuf_iterator<char>(in), {})).value();
  EXPECT_EQ(figures.Find("reasoning_tokens")->as_int(), sum);
  EXPECT_NE(run.err.find(" of them reasoning"), std::string::npos) << run.err;
}

TEST_F(ThoughtsProgramTest, BudgetsAreTheSameUnderSchedules) {
  const std::vector<Setting> settings = {
      {16, 512, 64, 2, "radix", true, "mixed", "optimistic", "priority", 0, 0},
      {1, 32, 3, 1, "radix", false, "mixed", "reserve", "fcfs", SmallestPool(1), 5},
      {64, 8192, 5, 2, "naive", true, "prefill-first", "optimistic", "priority", 0, 3}};
  for (const bool opens : {true, false}) {
    WriteConfig(model_.path(), opens);
    const std::string path = model_.path() + "/budgets.jsonl";
    // Where the template does not open it, the model often does, also in the middle of an answer.
    WriteBudgets(path, opens ? R"({"1986": -3})" : R"({"1986": -3, "500": 20})");
    ExpectIdenticalRows(model_.path(), path, settings);
  }
  const ProgramRun run =
      RunProgram({"run", "-m", model_.path(), "--file", model_.path() + "/budgets.jsonl"});
  int num_thought = 0, num_again = 0;
  for (const Json& row : run.Rows()) {
    num_thought += row.Find("usage")->Find("reasoning_tokens")->as_int() > 0 ? 1 : 0;
    num_again += row.Dump().find("500, 1986,") != std::string::npos ? 1 : 0;
    EXPECT_EQ(row.Dump().find("<think></think>"), std::string::npos) << "it is no text";
  }
  EXPECT_GE(num_thought, 5);
  EXPECT_GE(num_again, 3) << "a thought that began after the forced end of one";
}

TEST_F(ThoughtsProgramTest, AnswersThatEndedWithinTheirThoughtAreCounted) {
  const std::string path = model_.path() + "/cut.jsonl", summary = model_.path() + "/cut.json";
  std::ofstream rows(path);
  for (int i = 0; i < 3; ++i) {
    rows << R"({"messages": [{"role": "user", "content": "Victor lives in Havana"}], )"
         << R"("max_tokens": 5, "ignore_eos": true, "logit_bias": {"1986": -100}, )"
         << R"("thinking_token_budget": )" << (i == 0 ? 2 : -1) << "}\n";
  }
  rows.close();
  const ProgramRun run =
      RunProgram({"run", "-m", model_.path(), "--file", path, "--summary", summary});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("(12 of them reasoning; 2 answers ended within their reasoning)"),
            std::string::npos)
      << run.err;
  std::ifstream in(summary);
  const Json figures = ParseJson(std::string(std::istreambuf_iterator<char>(in), {})).value();
  EXPECT_EQ(*figures.Find("answers_ended_in_reasoning"), Json(2));
  for (const Json& row : run.Rows()) EXPECT_EQ(TextOf(row, "finish_reason"), "length");
}

}  // namespace
}  // namespace minisgl::answers
