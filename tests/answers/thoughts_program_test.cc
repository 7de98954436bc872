// Reasoning before an answer under a grammar, through the whole program: the demo model with its
// full stop as the end of a thought, which its template opens.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
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

class ThoughtsProgramTest : public ::testing::Test {
 protected:
  ThoughtsProgramTest() : model_({{500, "<think>"}, {1986, "</think>"}}) {
    const std::filesystem::path config =
        std::filesystem::path(model_.path()) / "tokenizer_config.json";
    std::filesystem::remove(config);  // a link
    std::ofstream(config)
        << R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "bos_token": "<s>",)"
        << R"( "eos_token": "</s>", "unk_token": "<unk>", "legacy": false, "chat_template": ")"
        << R"({{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n)"
        << R"({% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %})"
        << R"({{ m.content }}{{ eos_token }}\n{% endfor %})"
        << R"({% if add_generation_prompt %}<|assistant|>\n<think>{% endif %}"})";
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
  ASSERT_EQ(run.exit_code, 0) << run.err;
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
  EXPECT_EQ(RunProgram(Run({"-o", whole})).exit_code, 0);
  std::ifstream in(whole);
  std::ofstream half(output);
  std::string line;
  for (int i = 0; i < 6 && std::getline(in, line); ++i) half << line << "\n";
  half.close();
  std::filesystem::copy_file(whole + ".meta", output + ".meta");
  const ProgramRun resumed = RunProgram(Run({"-o", output, "--resume"}));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(RowsOf(output), RowsOf(whole));
}

}  // namespace
}  // namespace minisgl::answers
