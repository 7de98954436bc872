// The text of tables, as RFC 4180 and pandas have it.
#include "batch/table_text.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace minisgl::batch {
namespace {

using Fields = std::vector<std::string>;

// The records of `text`, which comes in pieces of `piece` bytes.
std::vector<std::string> Records(const std::string& text, char separator, size_t piece) {
  RecordScanner scanner(separator);
  std::vector<std::string> records;
  std::string buffer;
  size_t scanned = 0;
  for (size_t given = 0; given < text.size() || !buffer.empty();) {
    const bool is_all = given == text.size();
    const auto end = scanner.Find(buffer, &scanned, is_all);
    if (end) {
      records.push_back(buffer.substr(0, end->end));
      buffer.erase(0, end->next);
      scanned = 0;
    } else if (is_all) {
      records.push_back(buffer);
      break;
    } else {
      buffer += text.substr(given, piece);
      given = std::min(given + piece, text.size());
    }
  }
  return records;
}

Fields FieldsIn(const std::string& record, char separator = ',') {
  const auto fields = ParseRecord(record, separator);
  return fields.ok() ? *fields : Fields{"error: " + fields.status().message()};
}

TEST(TableTextTest, RecordsEndOutsideOfQuotationMarks) {
  const std::string text = "a,b\r\n\"x\ny\",\"\"\"\n\"\rc\"d,\"e\"\n\n\"f\"\"\r\n\",g\r";
  const std::vector<std::string> right = {"a,b", "\"x\ny\",\"\"\"\n\"", "c\"d,\"e\"", "",
                                          "\"f\"\"\r\n\",g"};
  for (const size_t piece : {1u, 2u, 3u, 5u, 100u}) EXPECT_EQ(Records(text, ',', piece), right);
  EXPECT_EQ(Records("\"a\tb\"\t\"c\nd", '\t', 1), (Fields{"\"a\tb\"\t\"c\nd"}));
}

TEST(TableTextTest, LinesAreCountedAlsoInsideOfFields) {
  RecordScanner scanner(',');
  const std::string text = "\"a\r\nb\nc\rd\",e\r\nf\n";
  size_t scanned = 0;
  ASSERT_TRUE(scanner.Find(text, &scanned, true));
  EXPECT_EQ(scanner.num_lines(), 4);
  ASSERT_TRUE(scanner.Find(text, &scanned, true));
  EXPECT_EQ(scanner.num_lines(), 5);
}

// The fields that pandas.read_csv(..., dtype=str, keep_default_na=False) makes of these texts.
TEST(TableTextTest, FieldsAreThoseOfPandas) {
  EXPECT_EQ(FieldsIn("a,b,c"), (Fields{"a", "b", "c"}));
  EXPECT_EQ(FieldsIn(",,"), (Fields{"", "", ""}));
  EXPECT_EQ(FieldsIn(""), Fields{""});
  EXPECT_EQ(FieldsIn(R"("a,b","c ""d""", e )"), (Fields{"a,b", "c \"d\"", " e "}));
  EXPECT_EQ(FieldsIn(R"("a"b,c"d"e,"")"), (Fields{"ab", "c\"d\"e", ""}));
  EXPECT_EQ(FieldsIn(R"("a"""b,"""")"), (Fields{"a\"b", "\""}));
  EXPECT_EQ(FieldsIn("a,b\t\"c,d\"", '\t'), (Fields{"a,b", "c,d"}));
  EXPECT_EQ(FieldsIn("a,\"b"), Fields{"error: the quotation mark of field 2 is not closed"});
  EXPECT_EQ(FieldsIn("\"b\"\""), Fields{"error: the quotation mark of field 1 is not closed"});
}

TEST(TableTextTest, WhatIsWrittenIsReadAgain) {
  std::mt19937 random(5);
  const std::string alphabet = "ab\",\t\n\r ;\xC3";
  for (int round = 0; round < 3000; ++round) {
    const char separator = round % 2 == 0 ? ',' : '\t';
    Fields fields(1 + random() % 4);
    std::string record;
    for (size_t i = 0; i < fields.size(); ++i) {
      for (size_t length = random() % 6; length > 0; --length) {
        fields[i] += alphabet[random() % alphabet.size()];
      }
      if (i > 0) record += separator;
      AppendField(fields[i], separator, fields.size() == 1, &record);
    }
    ASSERT_EQ(FieldsIn(record, separator), fields) << record;
    ASSERT_EQ(Records(record + "\n", separator, 1 + random() % 5), Fields{record});
    ASSERT_NE(record.find_first_not_of(" "), std::string::npos) << "a line of blanks is no record";
  }
}

TEST(TableTextTest, QuotationMarksAreWrittenWhereTheyAreNeeded) {
  const auto written = [](const std::string& field, bool is_only = false) {
    std::string text;
    AppendField(field, ',', is_only, &text);
    return text;
  };
  EXPECT_EQ(written("a b;c\td"), "a b;c\td");
  EXPECT_EQ(written("a,b"), "\"a,b\"");
  EXPECT_EQ(written("\"a\"\n"), "\"\"\"a\"\"\n\"");
  EXPECT_EQ(written(""), "");
  EXPECT_EQ(written("", true), "\"\"");
}

TEST(TableTextTest, ColumnsWithOneNameAreNumberedAsInPandas) {
  EXPECT_EQ(ColumnNames({"a", "b", "a", "a", ""}), (Fields{"a", "b", "a.1", "a.2", ""}));
  EXPECT_EQ(ColumnNames({"a", "a", "a.1"}), (Fields{"a", "a.2", "a.1"}));
}

}  // namespace
}  // namespace minisgl::batch
