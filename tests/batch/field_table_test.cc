// The fields of other programs' requests: none is unknown, each has one meaning, and the table of
// them is what rows do.
#include "batch/field_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "batch/row.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

constexpr FieldFlags kFieldPlaces[] = {kAtTop, kInSamplingParams, kInChat, kInCompletion,
                                       kInScored};

std::vector<std::string> NamesOf(const RequestFields& request) {
  std::vector<std::string> names;
  std::string name;
  for (const char c : std::string(request.names) + " ") {
    if (c != ' ') {
      name += c;
    } else if (!name.empty()) {
      names.push_back(std::exchange(name, ""));
    }
  }
  return names;
}

std::string ValueOf(const RowField& field) {
  switch (field.type) {
    case FieldType::kBool:
      return "false";
    case FieldType::kString:
      return "\"\"";
    case FieldType::kArray:
      return "[]";
    case FieldType::kObject:
      return "{}";
    default:
      return "1";
  }
}

ParsedRow RowWithField(const std::string& name, const std::string& value) {
  return ParseRow(
      R"({"messages": [{"role": "user", "content": "a"}], ")" + name + "\": " + value + "}", 0, 1);
}

TEST(FieldTableTest, NoFieldOfAKnownRequestIsUnknown) {
  size_t fields = 0;
  for (const RequestFields& request : KnownRequests()) {
    for (const std::string& name : NamesOf(request)) {
      for (const FieldFlags place : kFieldPlaces) {
        if ((request.places & place) == 0) continue;
        EXPECT_NE(FindRowField(name, place), nullptr) << request.program << ": " << name;
        ++fields;
      }
    }
  }
  EXPECT_GE(fields, 600u);
}

TEST(FieldTableTest, AFieldHasOneMeaningInAPlace) {
  for (const FieldFlags place : kFieldPlaces) {
    std::set<std::string_view> names;
    for (const std::span<const RowField> part : {RowFields(), ForeignFields()}) {
      for (const RowField& field : part) {
        if ((field.flags & place) == 0) continue;
        EXPECT_TRUE(names.insert(field.name).second) << field.name << " in " << int{place};
      }
    }
  }
}

TEST(FieldTableTest, EveryForeignFieldIsOfAKnownRequest) {
  std::set<std::string> known;
  for (const RequestFields& request : KnownRequests()) {
    for (const std::string& name : NamesOf(request)) known.insert(name);
  }
  for (const RowField& field : ForeignFields()) {
    EXPECT_TRUE(known.contains(field.name)) << field.name << " is in no list of requests";
    EXPECT_NE(field.expects, nullptr) << field.name;
    if (field.alias_of != nullptr) EXPECT_NE(FindRowField(field.alias_of, kAtTop), nullptr);
  }
}

TEST(FieldTableTest, RowsDoWhatTheTableSays) {
  std::map<FieldUse, int> counts;
  for (const RowField& field : ForeignFields()) {
    if ((field.flags & kAtTop) == 0) continue;
    ++counts[field.use];
    if (field.use == FieldUse::kNoEffect) {
      const ParsedRow parsed = RowWithField(field.name, ValueOf(field));
      EXPECT_FALSE(parsed.error) << field.name << ": " << parsed.error->message;
      EXPECT_TRUE(parsed.row.notes.empty()) << field.name;
    }
    if (field.use == FieldUse::kNoted) {
      const ParsedRow parsed = RowWithField(field.name, R"({"a": 1})");
      ASSERT_FALSE(parsed.error) << field.name << ": " << parsed.error->message;
      ASSERT_EQ(parsed.row.notes.size(), 1u) << field.name;
      EXPECT_NE(parsed.row.notes[0].text.find(field.name), std::string::npos);
      EXPECT_TRUE(parsed.row.warnings.empty());
      EXPECT_FALSE(RowWithField(field.name, "null").error);
    }
    if (field.use == FieldUse::kRefused) {
      const ParsedRow parsed = RowWithField(field.name, R"({"a": 1})");
      ASSERT_TRUE(parsed.error) << field.name;
      EXPECT_EQ(parsed.error->code, "unsupported_field") << field.name;
      EXPECT_EQ(parsed.error->field, field.name);
      EXPECT_NE(parsed.error->message.find(Expects(field)), std::string::npos);
    }
  }
  EXPECT_GE(counts[FieldUse::kNoEffect], 40);
  EXPECT_GE(counts[FieldUse::kNoted], 10);
  EXPECT_GE(counts[FieldUse::kRefused], 40);
}

TEST(FieldTableTest, OtherSpellingsAreTaken) {
  const ParsedRow llama = ParseRow(
      R"({"prompt": "a", "n_predict": 7.0, "repeat_penalty": 1.5, "n_probs": 3, "n_cmpl": 2,)"
      R"( "return_tokens": true, "grammar": "root ::= \"x\"", "cache_prompt": true,)"
      R"( "mirostat": 0, "typical_p": 1.0, "samplers": ["top_k"], "repeat_last_n": 64})",
      0, 1);
  ASSERT_FALSE(llama.error) << llama.error->message;
  EXPECT_EQ(llama.row.max_tokens, 7);
  EXPECT_EQ(llama.row.repetition_penalty, 1.5);
  EXPECT_EQ(llama.row.num_logprobs, 3);
  EXPECT_EQ(llama.row.n, 2);
  EXPECT_TRUE(llama.row.return_token_ids);
  EXPECT_TRUE(llama.row.grammar.has_value());
  EXPECT_EQ(llama.row.notes.size(), 2u);
  const ParsedRow sglang = ParseRow(
      R"({"text": "a", "rid": "x", "return_logprob": true, "top_logprobs_num": 2,)"
      R"( "logprob_start_len": -1, "sampling_params": {"regex": "a+", "no_stop_trim": true}})",
      0, 1);
  ASSERT_FALSE(sglang.error) << sglang.error->message;
  EXPECT_EQ(sglang.row.num_logprobs, 2);
  EXPECT_TRUE(sglang.row.include_stop);
  EXPECT_TRUE(sglang.row.grammar.has_value());
  for (const char* bad : {R"("n_predict": 0.5)", R"("n_predict": -2)", R"("repeat_penalty": 0)",
                          R"("n_probs": 99)", R"("max_tokens": 3, "n_predict": 3)"}) {
    EXPECT_TRUE(ParseRow(std::string(R"({"prompt": "a", )") + bad + "}", 0, 1).error) << bad;
  }
}

TEST(FieldTableTest, TheTableIsSortedAndFitsItsWidth) {
  const std::vector<FieldLine> lines = FieldLines();
  EXPECT_TRUE(std::is_sorted(lines.begin(), lines.end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (const size_t columns : {80, 200}) {
    const std::string table = FieldTable(columns);
    for (const FieldLine& line : lines) {
      EXPECT_NE(table.find("\n" + std::string(line.name) + " "), std::string::npos) << line.name;
    }
    for (const std::string& line : Lines(table)) EXPECT_LE(line.size(), columns) << line;
  }
}

}  // namespace
}  // namespace minisgl::batch
