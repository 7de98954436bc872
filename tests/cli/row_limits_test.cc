// Rows at the upper bound of how many values one may have: millions of them.
#include <gtest/gtest.h>

#include <string>

#include "cli/row.h"
#include "slow.h"

namespace minisgl {
namespace {

ParsedRow RowOfIds(uint64_t count) {
  std::string row = "{\"prompt_token_ids\": [1";
  for (uint64_t i = 1; i < count; ++i) row += ",1";
  return ParseRow(row + "]}", 3, 7, false);
}

TEST(RowTest, ARowOfTooManyValuesIsRefused) {
  MarkSlow("rows of four million values");
  const ParsedRow most = RowOfIds(kRowValuesMax - 2);
  EXPECT_FALSE(most.error);
  EXPECT_EQ(most.row.prompt_token_ids.size(), kRowValuesMax - 2);
  const ParsedRow over = RowOfIds(kRowValuesMax - 1);
  ASSERT_TRUE(over.error);
  EXPECT_EQ(over.error->code, "invalid_row");
  EXPECT_NE(over.error->message.find("more than 4194304 values"), std::string::npos)
      << over.error->message;
}

}  // namespace
}  // namespace minisgl
