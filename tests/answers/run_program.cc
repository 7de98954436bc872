#include "answers/run_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

extern char** environ;

namespace minisgl::answers {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string TemporaryFile() {
  std::string path = ::testing::TempDir() + "minisgl_answers_XXXXXX";
  const int fd = mkstemp(path.data());
  EXPECT_GE(fd, 0);
  close(fd);
  return path;
}

}  // namespace

std::vector<Json> ProgramRun::Rows() const {
  std::vector<Json> rows;
  size_t begin = 0;
  while (begin < out.size()) {
    const size_t end = std::min(out.find('\n', begin), out.size());
    auto row = ParseJson(std::string_view(out).substr(begin, end - begin));
    EXPECT_TRUE(row.ok()) << row.status().message();
    if (row.ok()) rows.push_back(std::move(row).value());
    begin = end + 1;
  }
  return rows;
}

ProgramRun RunProgram(const std::vector<std::string>& args) {
  return RunAndKill(args, std::chrono::hours(1));
}

ProgramRun RunAndKill(const std::vector<std::string>& args, std::chrono::milliseconds after) {
  const char* binary = std::getenv("MINISGL_BINARY");
  EXPECT_NE(binary, nullptr) << "MINISGL_BINARY names the program";
  unsetenv("MINISGL_MODEL");
  setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  std::vector<std::string> words{binary == nullptr ? "minisgl" : binary};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string out = TemporaryFile(), err = TemporaryFile();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_TRUNC, 0600);
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, words[0].c_str(), &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  const auto kill_at = std::chrono::steady_clock::now() + after;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
    if (std::chrono::steady_clock::now() >= kill_at) kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(ended, child);
  ProgramRun run;
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.out = ReadAll(out);
  run.err = ReadAll(err);
  unlink(out.c_str());
  unlink(err.c_str());
  return run;
}

std::string DemoModel() { return MINISGL_SOURCE_DIR "/tests/models/wren"; }

std::string PromptFile(const std::string& name) { return MINISGL_SOURCE_DIR "/prompts/" + name; }

bool IsAnswered(const ProgramRun& run) {
  if (run.exit_code == 0) return true;
  const std::vector<Json> rows = run.Rows();
  return run.exit_code == 1 && std::all_of(rows.begin(), rows.end(), [](const Json& row) {
           const Json* const error = row.Find("error");
           return error == nullptr || !error->is_object() ||
                  *error->Find("code") == Json("incomplete_answer");
         });
}

int CountRight(const std::vector<Json>& rows) {
  int right = 0;
  for (const Json& row : rows) {
    const Json* metadata = row.Find("metadata");
    const Json* expected = metadata == nullptr ? nullptr : metadata->Find("expected");
    const Json* text = row.Find("text");
    if (expected != nullptr && text != nullptr && *expected == *text) ++right;
  }
  return right;
}

std::vector<std::string> Comparable(const std::vector<Json>& rows) {
  std::vector<Json> sorted = rows;
  std::sort(sorted.begin(), sorted.end(), [](const Json& a, const Json& b) {
    return a.Find("index")->as_int() < b.Find("index")->as_int();
  });
  std::vector<std::string> lines;
  for (Json& row : sorted) {
    for (auto& [key, value] : row.as_object()) {
      if (key == "usage") value.Set("cached_tokens", Json());
    }
    lines.push_back(row.Dump());
  }
  return lines;
}

}  // namespace minisgl::answers
