// Fixture for tests that run `minisgl run` with the demo model.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "fakes.h"
#include "minisgl/base/json.h"
#include "program.h"

namespace minisgl {

using Arguments = std::vector<std::string>;

class RunProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }

  // Arguments of minisgl run with the demo model and little memory.
  static Arguments Run(const Arguments& more) {
    Arguments arguments = {"run", "-m", DemoModel(), "--num-pages", "512", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static ProgramResult RunModel(const Arguments& more, const std::string& input = "") {
    return RunProgram(Run(more), {input, "", {}});
  }
  static std::vector<Json> Rows(const std::string& text) {
    std::vector<Json> rows;
    for (const std::string& line : Lines(text)) {
      Result<Json> row = ParseJson(line);
      EXPECT_TRUE(row.ok()) << line;
      if (row.ok()) rows.push_back(std::move(row).value());
    }
    return rows;
  }
  static std::string Code(const Json& row) {
    const Json* error = row.Find("error");
    return error == nullptr ? "" : error->Find("code")->as_string();
  }
  static std::string Text(const Json& row) {
    const Json* text = row.Find("text");
    return text == nullptr ? "none: " + row.Dump() : text->as_string();
  }
  // Expects the error as a single line at the end of the output.
  static void ExpectFails(const ProgramResult& result, int exit_code, const std::string& expected) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(result.out, "");
    const std::vector<std::string> lines = Lines(result.err);
    ASSERT_FALSE(lines.empty());
    EXPECT_TRUE(lines.back().starts_with("minisgl: ")) << lines.back();
    EXPECT_NE(lines.back().find(expected), std::string::npos) << lines.back();
  }

  TemporaryFolder folder_;
};

inline constexpr const char* kPeru = "What is the capital of Peru?";
inline constexpr const char* kLima = "The capital of Peru is Lima.";
inline const std::string kPeruRow =
    R"({"messages": [{"role": "user", "content": "What is the capital of Peru?"}]})";

}  // namespace minisgl
