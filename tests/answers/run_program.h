// Runs the built program on prompt files and reads its rows.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "minisgl/base/json.h"

namespace minisgl::answers {

struct ProgramRun {
  int exit_code = -1;
  std::string out;                 // standard output
  std::string err;                 // standard error
  std::vector<Json> Rows() const;  // one per line of `out`; fails the test if one is not JSON
};

// `minisgl ARGS` with nothing on standard input and MINISGL_MODEL unset.
ProgramRun RunProgram(const std::vector<std::string>& args);
// The same, killed after so long if it still runs.
ProgramRun RunAndKill(const std::vector<std::string>& args, std::chrono::milliseconds after);

std::string DemoModel();                          // tests/models/wren
std::string PromptFile(const std::string& name);  // prompts/NAME

// True if each row has an answer; one that is cut within its form counts as a failed row (1).
bool IsAnswered(const ProgramRun& run);

// Number of rows whose answer is the text that their metadata expects.
int CountRight(const std::vector<Json>& rows);

// The rows as text, sorted by index, without usage.cached_tokens: the part that must not depend on
// the schedule.
std::vector<std::string> Comparable(const std::vector<Json>& rows);

}  // namespace minisgl::answers
