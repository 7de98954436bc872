// Copies and texts of values that run out of memory at any point: existing values stay whole, and
// unfinished ones are freed.
#include <gtest/gtest.h>

#include <new>

#include "faults/fault_shim.h"
#include "minisgl/base/json.h"

namespace minisgl::faults {
namespace {

// Calls `work` with its first, second, ... allocation failing, until it succeeds. Returns how often
// it failed.
template <typename Work>
int64_t FailAtEach(const Work& work) {
  for (int64_t number = 1;; ++number) {
    bool failed = false;
    Arm({.call = Call::kAllocate, .number = number});
    try {
      work();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    Disarm();
    if (!failed) return number - 1;
  }
}

TEST(ValueFaultTest, ACopyOfJsonThatFailsLeavesNothingBehind) {
  const auto json = ParseJson(
      R"([{"a long key that is no short string": ["text that takes memory of its own", 1, null]},
          {"b": {"c": [[], {}, "another text that takes memory of its own", 2.5, true]}}])");
  ASSERT_TRUE(json.ok());
  const std::string text = json->Dump();
  EXPECT_GT(FailAtEach([&] { const Json copy = *json; }), 5);
  EXPECT_GT(FailAtEach([&] {
              Json assigned = "something";
              assigned = *json;
            }),
            5);
  EXPECT_GT(FailAtEach([&] { const Json::Array several(3, *json); }), 15);
  EXPECT_EQ(json->Dump(), text);
}

TEST(ValueFaultTest, ParsingThatFailsLeavesNothingBehind) {
  const std::string text =
      R"({"k": [1, "two and some more of it, longer than short", {"x": [[]]}]})";
  EXPECT_GT(FailAtEach([&] { EXPECT_TRUE(ParseJson(text).ok()); }), 5);
}

}  // namespace
}  // namespace minisgl::faults
