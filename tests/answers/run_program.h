// Runs the built program on prompt files and reads its rows.
#pragma once

#include <string>
#include <vector>

#include "minisgl/base/json.h"

namespace minisgl::answers {

struct ProgramRun {
  int exit_code = -1;
  std::string out;                 // standard output
  std::string err;                 // standard error
  std::vector<Json> Rows() const;  // one a line of `out`; fails the test where one is no JSON
};

// `minisgl ARGS` with nothing on standard input and MINISGL_MODEL unset.
ProgramRun RunProgram(const std::vector<std::string>& args);

std::string DemoModel();                          // tests/models/wren
std::string PromptFile(const std::string& name);  // prompts/NAME

// How many rows answer with the text their metadata expects.
int CountRight(const std::vector<Json>& rows);

// The rows sorted by index, each as text, without usage.cached_tokens: what must not depend on any
// schedule.
std::vector<std::string> Comparable(const std::vector<Json>& rows);

}  // namespace minisgl::answers
