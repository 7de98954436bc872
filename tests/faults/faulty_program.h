// Runs the program with one fault in a child of the test's process: main(), linked into the test,
// from command line to exit status. Much faster than starting the program for each of thousands of
// faults.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "faults/fault_shim.h"

namespace minisgl::faults {

struct Outcome {
  int exit_code = -1;  // 128 + n if signal n ended it
  bool hung = false;   // it had to be killed
  std::string out, err;
  // If it exited by itself:
  bool struck = false;
  int64_t calls[kNumCalls] = {};
  int64_t peak_bytes = 0;
  std::vector<std::string> opened;
};

struct RunLimits {
  int seconds = 240;  // after which it counts as hung
};

// `arguments` exclude the program's name. Standard input is empty.
Outcome RunWithFault(const std::vector<std::string>& arguments, const Fault& fault,
                     const RunLimits& limits = {});

// A folder that is removed with the object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  void Write(const std::string& name, const std::string& bytes) const;
  std::string Read(const std::string& name) const;  // "" if there is none
  void Copy(const std::string& source, const std::string& name) const;

 private:
  std::string path_;
  const pid_t owner_ = getpid();
};

// The smallest model: some 90 KB of random weights and 170 tokens; with tokenizer.model, or with
// tokenizer.json and a chat template.
void WriteTinyModel(const Folder& folder, bool with_tokenizer_json);

}  // namespace minisgl::faults
