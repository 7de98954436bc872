#include "program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace minisgl {
namespace {

void Redirect(const std::string& path, int flags, int target) {
  const int fd = open(path.c_str(), flags, 0600);
  if (fd < 0 || dup2(fd, target) < 0) _exit(126);
}

int ExitCodeOf(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string ProgramBinary() {
  const char* path = std::getenv("MINISGL_BINARY");
  return path == nullptr ? "" : path;
}

std::string DemoModel() { return MINISGL_SOURCE_DIR "/tests/models/wren"; }

Program::Program(const std::vector<std::string>& arguments, const Options& options) {
  folder_.Write("in", options.input);
  const std::string binary = ProgramBinary();
  std::vector<std::string> words = {binary};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string out = options.output_path.empty() ? folder_.Path("out") : options.output_path;
  const std::string in = folder_.Path("in"), err = folder_.Path("err");
  pid_ = fork();
  if (pid_ != 0) return;
  Redirect(in, O_RDONLY, STDIN_FILENO);
  if (options.output_fd >= 0) {
    if (dup2(options.output_fd, STDOUT_FILENO) < 0) _exit(126);
  } else {
    Redirect(out, O_WRONLY | O_CREAT, STDOUT_FILENO);
  }
  Redirect(err, O_WRONLY | O_CREAT, STDERR_FILENO);
  if (options.bare_environment) {
    clearenv();
  } else {
    // Tests do not read the configuration of whoever runs them.
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  }
  for (const std::string& variable : options.environment) {
    putenv(const_cast<char*>(variable.c_str()));
  }
  // The parent may ignore signals (nohup does), which a program inherits.
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) signal(signal_number, SIG_DFL);
  execv(binary.c_str(), argv.data());
  _exit(127);
}

Program::~Program() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Program::Signal(int signal_number) const { kill(pid_, signal_number); }

void Program::WaitForOutput() const {
  while (folder_.Read("out").empty() && Runs()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Program::WaitForError(const std::string& text) const {
  while (folder_.Read("err").find(text) == std::string::npos && Runs()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool Program::Runs() const {
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  return info.si_pid == 0;
}

ProgramResult Program::Wait() {
  int status = 0;
  rusage used{};
  while (wait4(pid_, &status, 0, &used) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return {ExitCodeOf(status), folder_.Read("out"), folder_.Read("err"), used.ru_maxrss};
}

ProgramResult RunProgram(const std::vector<std::string>& arguments,
                         const Program::Options& options) {
  return Program(arguments, options).Wait();
}

}  // namespace minisgl
