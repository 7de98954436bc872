#include "faults/faulty_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "cli/program_main.h"

namespace minisgl::faults {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPathsBytes = 1 << 16;

// The child's report to the test, in shared memory.
struct Report {
  bool struck = false;
  int64_t calls[kNumCalls] = {};
  int64_t peak_bytes = 0;
  char opened[kPathsBytes] = {};  // paths, each followed by a line break
};

void Redirect(const char* path, int flags, int target) {
  const int fd = open(path, flags, 0600);
  if (fd < 0 || dup2(fd, target) < 0) _exit(126);
  close(fd);
}

void FillReport(Report* report) {
  report->struck = HasStruck();
  for (int call = 0; call < kNumCalls; ++call) {
    report->calls[call] = NumCalls(static_cast<Call>(call));
  }
  report->peak_bytes = PeakBytes();
  std::string opened;
  for (const std::string& path : OpenedPaths()) opened += path + "\n";
  std::strncpy(report->opened, opened.c_str(), kPathsBytes - 1);
}

[[noreturn]] void BeChild(std::vector<char*> argv, const std::string& out, const std::string& err,
                          const Fault& fault, Report* report) noexcept {
  Redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  Redirect(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  Redirect(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  // The process that runs the tests may ignore signals (nohup does).
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);
  Arm(fault);
  const int code = cli::ProgramMain(static_cast<int>(argv.size()) - 1, argv.data());
  Disarm();
  FillReport(report);
  std::exit(code);
}

// Waits for `pid` and returns its status. Kills it after `seconds`.
int WaitFor(pid_t pid, int seconds, bool* hung) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  int status = 0;
  auto pause = std::chrono::microseconds(200);
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      *hung = true;
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      break;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds(5));
  }
  return status;
}

}  // namespace

Outcome RunWithFault(const std::vector<std::string>& arguments, const Fault& fault,
                     const RunLimits& limits) {
  static const Folder streams;
  std::vector<std::string> words = {"minisgl"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string out = streams.Path("out"), err = streams.Path("err");
  void* const shared =
      mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(shared, MAP_FAILED);
  auto* const report = new (shared) Report();
  std::fflush(nullptr);  // or buffered output would be written twice
  const pid_t pid = fork();
  if (pid == 0) BeChild(argv, out, err, fault, report);
  Outcome outcome;
  const int status = WaitFor(pid, limits.seconds, &outcome.hung);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = streams.Read("out");
  outcome.err = streams.Read("err");
  outcome.struck = report->struck;
  std::copy_n(report->calls, kNumCalls, outcome.calls);
  outcome.peak_bytes = report->peak_bytes;
  const std::string opened = report->opened;
  for (size_t begin = 0, end; (end = opened.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    outcome.opened.push_back(opened.substr(begin, end - begin));
  }
  munmap(shared, sizeof(Report));
  return outcome;
}

Folder::Folder() {
  std::string pattern = (fs::temp_directory_path() / "minisgl-faults-XXXXXX").string();
  EXPECT_NE(mkdtemp(pattern.data()), nullptr) << pattern;
  path_ = pattern;
}

Folder::~Folder() {
  if (getpid() != owner_) return;  // a child exits; the test still uses the folder
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void Folder::Write(const std::string& name, const std::string& bytes) const {
  std::ofstream(Path(name), std::ios::binary) << bytes;
}

std::string Folder::Read(const std::string& name) const {
  std::ifstream file(Path(name), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

void Folder::Copy(const std::string& source, const std::string& name) const {
  fs::copy_file(source, Path(name), fs::copy_options::overwrite_existing);
}

void WriteTinyModel(const Folder& folder, bool with_tokenizer_json) {
  const std::string tests = MINISGL_SOURCE_DIR "/tests/";
  for (const char* name : {"config.json", "model.safetensors"}) {
    folder.Copy(tests + "golden/models/qwen2/" + name, name);
  }
  if (with_tokenizer_json) {
    folder.Copy(tests + "fuzz/corpus/tokenizer_json/kinds.json", "tokenizer.json");
    folder.Write("generation_config.json", R"({"max_new_tokens": 4})");
    folder.Write("tokenizer_config.json",
                 R"({"bos_token": "<s>", "eos_token": "</s>", "chat_template":
                     "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"})");
  } else {
    folder.Copy(tests + "fuzz/corpus/tokenizer/small_unigram.model", "tokenizer.model");
  }
}

}  // namespace minisgl::faults
