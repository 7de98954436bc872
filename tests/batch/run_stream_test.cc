// The program as a co-process: answers that come at once, parts of answers, aborts, and the
// examples of the manual.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "program/fakes.h"
#include "program/program.h"

namespace minisgl::batch {
namespace {

// The program between two pipes.
class CoProcess {
 public:
  explicit CoProcess(std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        ProgramBinary(), "run",       "-m", DemoModel(),   "--file", "-",
        "--quiet",       "--threads", "1",  "--num-pages", "512"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    int in[2], out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      execv(pointers[0], pointers.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  ~CoProcess() {
    close(out_);
    if (in_ >= 0) close(in_);
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }

  void Send(const std::string& line) const {
    const std::string text = line + "\n";
    EXPECT_EQ(write(in_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // The next line as JSON; null if none comes within four minutes or the output has ended.
  Json Next() {
    while (true) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        const Result<Json> json = ParseJson(buffer_.substr(0, end));
        EXPECT_TRUE(json.ok()) << buffer_;
        buffer_.erase(0, end + 1);
        return json.ok() ? *json : Json();
      }
      pollfd waiting{out_, POLLIN, 0};
      if (poll(&waiting, 1, 240'000) <= 0) return Json();
      char bytes[4096];
      const ssize_t got = read(out_, bytes, sizeof bytes);
      if (got <= 0) return Json();
      buffer_.append(bytes, static_cast<size_t>(got));
    }
  }
  // Ends the input and returns the exit status.
  int End() {
    close(std::exchange(in_, -1));
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string buffer_;
};

class RunStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  static std::string Id(const Json& row) {
    const Json* const id = row.Find("id");
    return id != nullptr && id->is_string() ? id->as_string() : "";
  }
  static std::string Code(const Json& row) {
    const Json* const error = row.Find("error");
    return error == nullptr ? "" : error->Find("code")->as_string();
  }
  // Too long to end before the test does.
  static std::string Long(const std::string& id, const std::string& more = "") {
    return R"({"id": ")" + id + R"(", "prompt": "Once", "ignore_eos": true, "max_tokens": 2000)" +
           more + "}";
  }
  static std::string Short(const std::string& id) {
    return R"({"id": ")" + id + R"(", "prompt": "Once upon a time", "max_tokens": 4})";
  }
  TemporaryFolder folder_;
};

TEST_F(RunStreamTest, EachRowIsAnsweredAsItComes) {
  CoProcess program({"--raw"});
  for (const char* id : {"a", "b", "c"}) {
    program.Send(Short(id));
    EXPECT_EQ(Id(program.Next()), id);
  }
  EXPECT_EQ(program.End(), 0);
}

TEST_F(RunStreamTest, UnorderedAnswersDoNotWaitForEarlierRows) {
  CoProcess program({"--raw", "--unordered"});
  program.Send(Long("long"));
  program.Send(Short("short"));
  EXPECT_EQ(Id(program.Next()), "short");
  program.Send(R"({"abort": "long"})");
  const Json aborted = program.Next();
  EXPECT_EQ(Id(aborted), "long");
  EXPECT_EQ(Code(aborted), "aborted") << aborted.Dump();
  EXPECT_EQ(program.End(), 1);
}

TEST_F(RunStreamTest, PartsOfAnAnswerAreItsText) {
  CoProcess program({"--raw", "--stream"});
  program.Send(R"({"id": "two", "n": 2, "prompt": "Once upon a time", "max_tokens": 20})");
  program.Send(
      R"({"id": "turns", "answer_all_turns": true, "max_tokens": 20, "messages": [)"
      R"({"role": "user", "content": "Hi"}, {"role": "user", "content": "Who are you?"}]})");
  std::map<std::string, std::string> texts;
  int parts = 0, rows = 0;
  while (rows < 2) {
    const Json line = program.Next();
    ASSERT_FALSE(line.is_null());
    const std::string key = Id(line) == "two" ? "choice" : "turn";
    if (const Json* const delta = line.Find("delta")) {
      texts[Id(line) + line.Find(key)->Dump()] += delta->as_string();
      ++parts;
      continue;
    }
    ++rows;
    const Json* const answers = line.Find(key == "choice" ? "choices" : "turns");
    ASSERT_NE(answers, nullptr) << line.Dump();
    ASSERT_EQ(answers->as_array().size(), 2u);
    for (const Json& answer : answers->as_array()) {
      EXPECT_EQ(texts[Id(line) + answer.Find("index")->Dump()], answer.Find("text")->as_string());
    }
  }
  EXPECT_GT(parts, 8);
  EXPECT_EQ(program.End(), 0);
}

TEST_F(RunStreamTest, RowsAreAbortedWhereverTheyAre) {
  CoProcess program({"--raw", "--unordered", "--max-running-requests", "1", "--policy", "fcfs"});
  program.Send(Long("runs", R"(, "session": "s")"));
  program.Send(R"({"id": "waits", "session": "s", "append": true, "prompt": "a"})");
  program.Send(Long("queued"));
  std::string large = R"({"id": "large", "prompt": ")";
  for (int i = 0; i < 9000; ++i) large += "word ";
  program.Send(large + "\"}");
  program.Send(R"({"abort": "nobody"})");
  program.Send(R"({"abort": "waits"})");
  program.Send(R"({"abort": "queued"})");
  EXPECT_EQ(Code(program.Next()) == "", false);
  program.Send(R"({"abort": "runs"})");
  std::map<std::string, std::string> codes;
  program.Send(Short("last"));
  for (Json row = program.Next(); Id(row) != "last"; row = program.Next()) {
    ASSERT_FALSE(row.is_null());
    codes[Id(row)] = Code(row);
  }
  EXPECT_EQ(codes["runs"], "aborted");
  EXPECT_EQ(codes["waits"], "aborted") << "its own error comes before session_failed";
  EXPECT_EQ(program.End(), 1);
}

TEST_F(RunStreamTest, AResetEmptiesTheCache) {
  CoProcess program({"--raw", "--page-size", "1"});
  const auto cached = [&](const std::string& id) {
    program.Send(Short(id));
    const Json row = program.Next();
    return row.Find("usage")->Find("cached_tokens")->as_int();
  };
  EXPECT_EQ(cached("a"), 0);
  EXPECT_GT(cached("b"), 0);
  program.Send(R"({"reset_prefix_cache": true})");
  EXPECT_EQ(cached("c"), 0);
  // These are rows, and bad ones.
  for (const char* line :
       {R"({"abort": null})", R"({"reset_prefix_cache": false})", R"({"abort": "a", "id": "b"})"}) {
    program.Send(line);
    EXPECT_NE(Code(program.Next()), "") << line;
  }
  EXPECT_EQ(program.End(), 1);
}

TEST_F(RunStreamTest, OptionsThatMakeNoSenseAreRefused) {
  const std::string rows = folder_.Write("rows", Short("a") + "\n");
  const std::vector<std::vector<std::string>> cases = {
      {"-p", "Hi", "--stream"},
      {"--file", rows, "--stream", "-o", folder_.Path("out")},
      {"--file", rows, "--stream", "--ordered"},
      {"--file", rows, "--unordered", "--ordered"},
  };
  for (std::vector<std::string> arguments : cases) {
    arguments.insert(arguments.begin(), {"run", "-m", DemoModel()});
    EXPECT_EQ(RunProgram(arguments).exit_code, 64);
  }
  // A regular file holds rows only.
  const std::string file = folder_.Write("control", "{\"abort\": \"a\"}\n");
  EXPECT_EQ(RunProgram({"run", "-m", DemoModel(), "--file", file}).exit_code, 1);
}

// Returns the example of a manual page that begins with `first`.
std::string Example(const std::string& first, const std::string& name = "minisgl-run.1") {
  const std::string page = *ReadFile(std::string(MINISGL_SOURCE_DIR) + "/man/" + name, 1 << 20);
  const size_t begin = page.find("\n" + first) + 1, end = page.find("\n.Ed", begin);
  EXPECT_NE(begin, 0u) << first;
  std::string text = page.substr(begin, end + 1 - begin);
  for (size_t at = 0; (at = text.find("\\e", at)) != std::string::npos; ++at) {
    text.replace(at, 2, "\\");
  }
  return text;
}

TEST_F(RunStreamTest, TheExamplesOfTheManualRun) {
  std::filesystem::create_symlink(ProgramBinary(), folder_.Path("minisgl"));
  folder_.Write("example.py", Example("import json"));
  folder_.Write("example.sh", Example("mkfifo"));
  const auto run = [&](const std::string& command) {
    const std::string line = "cd '" + folder_.Path("") + "' && PATH=$PWD:$PATH MINISGL_MODEL='" +
                             DemoModel() + "' timeout 600 " + command + " >shown 2>&1";
    EXPECT_EQ(std::system(line.c_str()), 0) << folder_.Read("shown");
    return folder_.Read("shown");
  };
  const std::string python = run("python3 example.py");
  EXPECT_NE(python.find("capital = The capital of France is Paris."), std::string::npos) << python;
  EXPECT_NE(python.find("story ... "), std::string::npos) << python;
  EXPECT_NE(python.find("story = {'code': 'aborted'"), std::string::npos) << python;
  const std::string shell = run("sh example.sh");
  EXPECT_NE(shell.find("Paris"), std::string::npos) << shell;
  EXPECT_NE(shell.find("Rome"), std::string::npos) << shell;
}

// The router knows of each prompt how much of it a process holds.
TEST_F(RunStreamTest, TheRouterOfTheManualFindsWhatIsCached) {
  std::string prompt = "Count:";
  for (int i = 0; i < 60; ++i) prompt += " " + std::to_string(i);
  const std::string events = folder_.Path("events");
  const ProgramResult run = RunProgram({"run", "-m", DemoModel(), "--raw", "-n", "2", "--page-size",
                                        "16", "--events", events, "-p", prompt});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  folder_.Write("router.py", Example("import hashlib", "minisgl-options.7") + R"(
import subprocess, sys
def ids(text):
    command = [sys.argv[1], "tokenize", "-m", sys.argv[2], "--raw"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["prompt_token_ids"]
prompt = sys.argv[3]
assert cached_tokens(ids(prompt)) == 0
for line in open("events"): read(line)
whole = ids(prompt)
assert len(whole) > 100, whole
assert cached_tokens(whole) == len(whole) // 16 * 16, (len(whole), cached_tokens(whole))
assert cached_tokens(ids("Other" + prompt)) == 0
begun = ids(prompt[:len(prompt) // 2] + " and others" * 40)
assert 0 < cached_tokens(begun) < len(begun) // 16 * 16, cached_tokens(begun)
)");
  const std::string line = "cd '" + folder_.Path("") + "' && python3 router.py '" +
                           ProgramBinary() + "' '" + DemoModel() + "' '" + prompt + "' >shown 2>&1";
  EXPECT_EQ(std::system(line.c_str()), 0) << folder_.Read("shown");
}

}  // namespace
}  // namespace minisgl::batch
