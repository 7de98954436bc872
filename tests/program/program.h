// Runs the program as a user would and keeps its output. The environment variable MINISGL_BINARY
// names the binary; without it, tests are skipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fakes.h"

namespace minisgl {

// Returns the path of the binary, "" if none is named.
std::string ProgramBinary();
std::string DemoModel();

// How often `part` stands in `text`.
inline size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct ProgramResult {
  int exit_code = -1;  // 128 + n if signal n ended it
  std::string out;
  std::string err;
  int64_t peak_kib = 0;  // peak resident memory
};

// A running program, with its standard streams in files of `folder`.
class Program {
 public:
  struct Options {
    std::string input;                     // contents of standard input
    std::string output_path;               // file for standard output; "" keeps it in `out`
    std::vector<std::string> environment;  // "NAME=VALUE", added to the test's own
    bool bare_environment = false;         // `environment` and no more, as under cron or env -i
    // for standard output, if given; the test closes its own copy
    int output_fd = -1;
  };

  Program(const std::vector<std::string>& arguments, const Options& options);
  ~Program();
  void Signal(int signal_number) const;
  bool Runs() const;
  // Waits until standard output holds something or the program has ended.
  void WaitForOutput() const;
  // Waits until standard error holds `text` or the program has ended.
  void WaitForError(const std::string& text) const;
  ProgramResult Wait();

 private:
  TemporaryFolder folder_;
  int pid_ = -1;
};

ProgramResult RunProgram(const std::vector<std::string>& arguments,
                         const Program::Options& options = {});

}  // namespace minisgl
