// The program in a pseudo-terminal, or between pipes, driven as a person would: send, wait for what
// must appear.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace minisgl {

// The program that stands beside the tests in the build folder, or $MINISGL_BINARY; "" where there
// is none.
std::string ProgramPath();

class PtyProcess {
 public:
  // Starts `program`, ours if not given, with `args`; `environment` is set on top of this process's
  // own.
  PtyProcess(const std::vector<std::string>& args,
             const std::map<std::string, std::string>& environment,
             const std::string& program = ProgramPath());
  // Kills what has not ended.
  ~PtyProcess();
  PtyProcess(const PtyProcess&) = delete;
  PtyProcess& operator=(const PtyProcess&) = delete;

  void Send(const std::string& bytes);
  void Signal(int signal_number) const;
  // Stops it as SIGSTOP does, and returns once it stands still; SIGCONT lets it go on.
  void Stop() const;
  // Gives the terminal another width; the program is told by a signal, as by any terminal.
  void Resize(int columns) const;
  // As a shell sets the terminal for itself: whole lines, which it echoes; and whether it is so.
  void SetLineMode() const;
  bool IsInLineMode() const;
  // The terminal goes away, as a window that is closed.
  void HangUp();
  // Whether `text` appears after what the last successful wait found. The time is only for a
  // program that hangs: a busy machine takes a part of it.
  bool WaitFor(const std::string& text) { return WaitForOneOf({text}) == 0; }
  // Which of `texts` appears first; -1 if none does in time.
  int WaitForOneOf(const std::vector<std::string>& texts);
  // Reads what is shown meanwhile.
  void ReadFor(double seconds);
  // What was shown so far is no answer to a later wait.
  void PassOver() { seen_ = output_.size(); }
  // The exit status, or 128 + the signal; -1 if it does not end in time. Reads the rest of the
  // output.
  int WaitForExit();
  // All that was shown so far, and what was shown after the last successful wait.
  const std::string& output() const { return output_; }
  std::string Unseen() const { return output_.substr(seen_); }
  // What was shown up to the end of what the last successful wait found.
  std::string Seen() const { return output_.substr(0, seen_); }

 private:
  // Reads what is there, waiting up to `timeout_ms` for it; false at the end.
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

// Runs the program to its end with `input` as its standard input, which is closed if there is none.
// A program that does not end is killed after some minutes.
PipedResult RunPiped(const std::vector<std::string>& args, const std::optional<std::string>& input);

}  // namespace minisgl
