// Rows that a template makes of tables and of JSON objects.
#include "batch/row_template.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "batch/row_source.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

class RowTemplateTest : public ::testing::Test {
 protected:
  // Reads all rows of a file called `name`. `system`: "" for no template of the system message.
  std::vector<ParsedRow> Rows(const std::string& name, const std::string& content,
                              const std::string& prompt, const std::string& system = "",
                              bool raw = false) {
    TemplateOptions options;
    options.prompt = prompt;
    if (!system.empty()) options.system = system;
    EXPECT_TRUE(ReadTemplates(&options).ok());
    auto made = RowTemplate::Make(options, std::nullopt,
                                  raw ? RowTemplate::Use::kPrompt : RowTemplate::Use::kQuestion);
    EXPECT_TRUE(made.ok()) << made.status().message();
    Result<LineReader> reader = LineReader::Open(folder_.Write(name, content));
    EXPECT_TRUE(reader.ok());
    if (const auto separator = SeparatorOf(options.format, name)) reader->ReadTable(*separator);
    FileRowSource source(&*reader, /*lenient=*/false, /*check_ids=*/true);
    source.UseTemplate(made->get());
    std::vector<ParsedRow> rows;
    ParsedRow row;
    RowSource::Outcome outcome = RowSource::Outcome::kEnd;
    while ((outcome = source.Next(0, &row)) == RowSource::Outcome::kRow) {
      rows.push_back(std::move(row));
    }
    EXPECT_EQ(outcome, RowSource::Outcome::kEnd) << source.status().message();
    return rows;
  }
  static std::string Content(const ParsedRow& row, size_t message = 0) {
    if (row.error) return row.error->code + ": " + row.error->message;
    return row.row.messages.as_array().at(message).Find("content")->as_string();
  }

  TemporaryFolder folder_;
};

TEST_F(RowTemplateTest, EachRecordOfATableIsAQuestion) {
  const std::vector<ParsedRow> rows =
      Rows("in.csv", "\xEF\xBB\xBF\"id\",text,n\r\nr1,\"a \"\"b\"\",\nc\",1\r\n\r\nr2,,2\r\n",
           "Classify: {{ text }}", "You are judge {{ n }}.");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].row.kind, PromptKind::kMessages);
  EXPECT_EQ(Content(rows[0], 0), "You are judge 1.");
  EXPECT_EQ(Content(rows[0], 1), "Classify: a \"b\",\nc");
  EXPECT_EQ(Content(rows[1], 1), "Classify: ");
  EXPECT_EQ(rows[0].row.id, Json("r1"));
  EXPECT_EQ(rows[1].row.id, Json("r2"));
  EXPECT_EQ(rows[0].row.index, 0);
  EXPECT_EQ(rows[0].row.line, 2);
  EXPECT_EQ(rows[1].row.line, 5) << "of the file: the first record has a line break";
}

TEST_F(RowTemplateTest, TabsSeparateTheFieldsOfTsv) {
  const auto rows = Rows("in.TSV", "a\tb\n1,2\t\"x\ty\"\n\t\n", "{{ a }}|{{ b }}");
  ASSERT_EQ(rows.size(), 2u) << "a line of tabs is a record of empty fields";
  EXPECT_EQ(Content(rows[0]), "1,2|x\ty");
  EXPECT_EQ(Content(rows[1]), "|");
}

TEST_F(RowTemplateTest, MembersOfJsonObjectsAreVariables) {
  const auto rows = Rows("in.jsonl",
                         "{\"id\": 7, \"max_tokens\": \"any\", \"tags\": [\"x\", \"y\"]}\n"
                         "[1]\n{\"id\": {}, \"tags\": []}\n",
                         "{{ tags | join('+') }}{{ max_tokens | default('none') }}");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(Content(rows[0]), "x+yany");
  EXPECT_EQ(rows[0].row.id, Json(7));
  EXPECT_FALSE(rows[0].row.max_tokens) << "a column has no meaning of its own";
  EXPECT_EQ(Content(rows[1]),
            "invalid_row: with a template a row must be an object (found an array)");
  EXPECT_EQ(Content(rows[2]), "none");
  EXPECT_TRUE(rows[2].row.id.is_null());
}

TEST_F(RowTemplateTest, ABadRecordIsAnErrorOfItsRow) {
  const auto rows = Rows("in.csv", "a,b\n1,2,3\n1\n\xE9,x\nx,\"y", "{{ a }}{{ b }}");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(Content(rows[0]), "invalid_row: has 3 fields, and the header has 2");
  EXPECT_EQ(Content(rows[1]), "template_error: --template:1: 'b' is undefined");
  EXPECT_EQ(Content(rows[2]),
            "invalid_row: the column a is not UTF-8; convert the file, as iconv does");
  EXPECT_EQ(Content(rows[3]), "invalid_row: the quotation mark of field 2 is not closed");
  EXPECT_EQ(rows[3].row.line, 5);
}

TEST_F(RowTemplateTest, IdsThatAreGivenTwiceAreRefusedAndEmptyOnesAreNone) {
  const auto rows = Rows("in.csv", "id,a\nx,1\nx,2\n,3\n,4\n", "{{ a }}");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(Content(rows[0]), "1");
  EXPECT_EQ(Content(rows[1]),
            "duplicate_id: the id \"x\" was already on line 2; give each row its own");
  EXPECT_EQ(Content(rows[2]), "3");
  EXPECT_EQ(Content(rows[3]), "4");
}

TEST_F(RowTemplateTest, ARawPromptIsCompletedAsItIs) {
  const auto rows = Rows("in.csv", "a\nb\n", "{{ a }}", "", /*raw=*/true);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].row.kind, PromptKind::kText);
  EXPECT_EQ(rows[0].row.prompt, "b");
}

TEST_F(RowTemplateTest, ATemplateInAFileIsNamedInErrors) {
  const auto rows = Rows("in.csv", "a\nb\n", "@" + folder_.Write("ask.txt", "line\n{{ c }}\n"));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(Content(rows[0]),
            "template_error: " + folder_.Path("ask.txt") + ":2: 'c' is undefined");
}

TEST_F(RowTemplateTest, TheNameOfAFileSaysWhatItIs) {
  for (const char* name : {"a.csv", "A.CSV", "a.csv.gz", "a.csv.zst"}) {
    EXPECT_EQ(SeparatorOf(InputFormat::kAuto, name), ',') << name;
  }
  EXPECT_EQ(SeparatorOf(InputFormat::kAuto, "x/a.tsv.gz"), '\t');
  for (const char* name : {"a.jsonl", "a.jsonl.gz", "-", "csv", "a.csv.bak"}) {
    EXPECT_EQ(SeparatorOf(InputFormat::kAuto, name), std::nullopt) << name;
  }
  EXPECT_EQ(SeparatorOf(InputFormat::kTsv, "a.csv"), '\t');
  EXPECT_EQ(SeparatorOf(InputFormat::kJsonLines, "a.csv"), std::nullopt);
}

TEST_F(RowTemplateTest, AHeaderThatCannotBeReadIsAnErrorOfTheFile) {
  for (const auto& [content, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "has no header"},
           {"\n \n", "has no header"},
           {"a\xE9,b\n1,2\n", "the header is not UTF-8"},
           {"\"a,b\n1,2\n", "in the header, the quotation mark of field 1 is not closed"}}) {
    Result<LineReader> reader = LineReader::Open(folder_.Write("in.csv", content));
    ASSERT_TRUE(reader.ok());
    reader->ReadTable(',');
    const Status status = reader->ReadHeader();
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace minisgl::batch
