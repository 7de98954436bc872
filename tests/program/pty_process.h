// Runs the program in a pseudo-terminal or between pipes and drives it as a user would: send, then
// wait for output.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace minisgl {

// Returns the program in the build folder, or $MINISGL_BINARY; "" if there is none.
std::string ProgramPath();

class PtyProcess {
 public:
  // Starts `program`, by default ours, with `args`; `environment` is added to this process's own.
  PtyProcess(const std::vector<std::string>& args,
             const std::map<std::string, std::string>& environment,
             const std::string& program = ProgramPath());
  // Kills the process if it has not ended.
  ~PtyProcess();
  PtyProcess(const PtyProcess&) = delete;
  PtyProcess& operator=(const PtyProcess&) = delete;

  void Send(const std::string& bytes);
  void Signal(int signal_number) const;
  // Stops it with SIGSTOP and returns after it has stopped; SIGCONT continues it.
  void Stop() const;
  // Changes the width of the terminal; the program gets SIGWINCH.
  void Resize(int columns) const;
  // Sets the terminal's modes as a shell does (whole lines, with echo), and checks for these modes.
  void SetLineMode() const;
  bool IsInLineMode() const;
  // Hangs up the terminal, as when a window is closed.
  void HangUp();
  // Returns true if `text` appears after the match of the last successful wait. The timeout is only
  // for programs that hang, and is far longer than a busy machine needs.
  bool WaitFor(const std::string& text) { return WaitForOneOf({text}) == 0; }
  // Returns the index of the text that appears first; -1 after the timeout.
  int WaitForOneOf(const std::vector<std::string>& texts);
  // Reads output for a time.
  void ReadFor(double seconds);
  // Reads the output of a stopped program.
  void ReadRest();
  // Excludes the output so far from later waits.
  void PassOver() { seen_ = output_.size(); }
  // Returns the exit status, or 128 + the signal; -1 after the timeout. Reads the rest of the
  // output.
  int WaitForExit();
  // All output so far, and the output after the last successful wait.
  const std::string& output() const { return output_; }
  std::string Unseen() const { return output_.substr(seen_); }
  // The output up to the end of the last match.
  std::string Seen() const { return output_.substr(0, seen_); }

 private:
  // Reads available output, waiting up to `timeout_ms` for it; returns false at the end.
  bool Read(int timeout_ms);
  int FirstOf(const std::vector<std::string>& texts, size_t* end) const;

  pid_t pid_ = -1;
  int fd_ = -1;
  std::string output_;
  size_t seen_ = 0;
};

struct PipedResult {
  int status = -1;
  std::string out, err;
};

// Runs the program to its end with `input` as standard input, which is closed if there is none. A
// program that does not end is killed after some minutes.
PipedResult RunPiped(const std::vector<std::string>& args, const std::optional<std::string>& input);

}  // namespace minisgl
