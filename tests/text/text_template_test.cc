// Templates of the user's own, over the columns of a row.
#include "minisgl/text/text_template.h"

#include <gtest/gtest.h>

#include <string>

namespace minisgl {
namespace {

Result<std::string> Render(const std::string& source, const std::string& columns) {
  const auto parsed = TextTemplate::Parse(source, "--template");
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->Render(ParseJson(columns).value());
}

std::string Text(const std::string& source, const std::string& columns) {
  const Result<std::string> text = Render(source, columns);
  return text.ok() ? *text : "error: " + text.status().message();
}

TEST(TextTemplateTest, ColumnsAreVariables) {
  EXPECT_EQ(Text("Classify: {{ text }}", R"({"text": "a {{ b }} <|im_end|>", "x": 1})"),
            "Classify: a {{ b }} <|im_end|>");
  EXPECT_EQ(
      Text("{{ n + 1 }} {{ list[1] }} {{ o.k }}", R"({"n": 2, "list": [1, 7], "o": {"k": 3}})"),
      "3 7 3");
  EXPECT_EQ(
      Text("{% for w in text.split(',') %}{{ w | trim }};{% endfor %}", R"({"text": "a, b"})"),
      "a;b;");
  EXPECT_EQ(Text("no column", "{}"), "no column");
}

TEST(TextTemplateTest, NamesThatAreNoWordsAreMembersOfTheRow) {
  EXPECT_EQ(Text("{{ row['Product name'] }}", R"({"Product name": "lamp"})"), "lamp");
  EXPECT_EQ(Text("{{ row }}", R"({"row": "a column", "b": 1})"), "a column");
}

TEST(TextTemplateTest, AColumnNamedRowHidesNoOtherColumn) {
  const std::string columns = R"({"country": "Peru", "row": "5 a", "Its name": "x"})";
  EXPECT_EQ(Text("{{ country }} {{ row }}", columns), "Peru 5 a");
  EXPECT_EQ(Text("{{ country }}", columns), "Peru") << "before it";
  EXPECT_EQ(Text("{{ row.country }} {{ row['Its name'] }} {{ row.row }}", columns), "Peru x 5 a");
  EXPECT_EQ(Text("{{ row.upper() }} {{ row[0] }} {{ row | length }}", columns), "5 A 5 3")
      << "members and methods of its value come first";
  EXPECT_EQ(Text("{{ row.a }} {{ row.b }}", R"({"row": {"a": 1}, "a": 2, "b": 3})"), "1 3");
  EXPECT_EQ(Text("{{ row.txet }}", columns), "error: --template:1: 'txet' is undefined");
  EXPECT_EQ(Text("{{ row }} {{ row.b }}", R"({"b": 1, "row": null})"), "None 1");
  EXPECT_EQ(Text("{% for row in [{'a': 1}] %}{{ row.a }}{{ row.b is defined }}{% endfor %}",
                 R"({"b": 1, "row": 2})"),
            "1False")
      << "another variable of that name";
}

TEST(TextTemplateTest, IntegersHaveAllTheirDigits) {
  EXPECT_EQ(Text("{{ doc }} {{ ok }} {{ row.doc + 1 }} {{ row | tojson }}",
                 R"({"doc": 10881715073803520453, "ok": 1470944601309528072})"),
            "10881715073803520453 1470944601309528072 10881715073803520454 "
            R"({"doc": 10881715073803520453, "ok": 1470944601309528072})");
}

// Names that chat templates set are columns like any other.
TEST(TextTemplateTest, NamesOfChatTemplatesAreOrdinaryColumns) {
  EXPECT_EQ(Text("{{ messages }} {{ tools }} {{ bos_token }}",
                 R"({"messages": "m", "tools": "t", "bos_token": "b"})"),
            "m t b");
}

TEST(TextTemplateTest, AMissingColumnIsAnErrorThatNamesIt) {
  for (const char* source :
       {"\n{{ txet }}", "\n{{ txet | upper }}", "\n{{ 'a' ~ txet }}", "\n{{ row['txet'] }}"}) {
    EXPECT_EQ(Text(source, R"({"text": "a"})"), "error: --template:2: 'txet' is undefined")
        << source;
  }
  EXPECT_EQ(Text("{{ note | default('none') }}{{ note | d('x') }}", "{}"), "nonex");
  EXPECT_EQ(Text("{% if note %}a{% else %}b{% endif %}{{ note is defined }}", "{}"), "bFalse");
  // An empty cell is there.
  EXPECT_EQ(Text("[{{ note }}]", R"({"note": ""})"), "[]");
}

TEST(TextTemplateTest, ErrorsNameTheirLine) {
  EXPECT_EQ(Text("{{ a", "{}").substr(0, 20), "error: --template:1:");
  EXPECT_EQ(Text("\n\n{{ 1 + 'a' }}", "{}").substr(0, 20), "error: --template:3:");
  EXPECT_EQ(Render("{{ raise_exception('no') }}", "{}").status().code(), StatusCode::kBadInput);
  EXPECT_EQ(
      Text("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "{}")
          .substr(0, 6),
      "error:");
  EXPECT_EQ(TextTemplate::Parse(std::string((1 << 20) + 1, 'a'), "t").status().code(),
            StatusCode::kBadInput);
}

}  // namespace
}  // namespace minisgl
