// Runs the program as a user would and keeps what it said. The binary is named by the environment
// variable MINISGL_BINARY; without it tests are skipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fakes.h"

namespace minisgl {

// The path of the binary, "" where none is named.
std::string ProgramBinary();
std::string DemoModel();

struct ProgramResult {
  int exit_code = -1;  // 128 + n where signal n ended it
  std::string out;
  std::string err;
  int64_t peak_kib = 0;  // most memory that was resident
};

// A program under way, its standard streams in files of `folder`.
class Program {
 public:
  struct Options {
    std::string input;                     // what standard input holds
    std::string output_path;               // standard output goes there; "": it is kept
    std::vector<std::string> environment;  // "NAME=VALUE", beside the test's own
    int output_fd = -1;                    // standard output, if given; the test closes its own
  };

  Program(const std::vector<std::string>& arguments, const Options& options);
  ~Program();
  void Signal(int signal_number) const;
  bool Runs() const;
  // Until standard output holds something, or the program has ended.
  void WaitForOutput() const;
  // Until standard error holds `text`, or the program has ended.
  void WaitForError(const std::string& text) const;
  ProgramResult Wait();

 private:
  TemporaryFolder folder_;
  int pid_ = -1;
};

ProgramResult RunProgram(const std::vector<std::string>& arguments,
                         const Program::Options& options = {});

}  // namespace minisgl
