// RunChild: programs that end well, badly, late or not at all.
#include "minisgl/base/child_process.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "temporary_folder.h"

namespace minisgl {
namespace {

using End = ChildResult::End;
using ChildWords = std::vector<std::string>;

// Far above what a test needs: only a fault reaches it.
ChildLimits LongLimits() {
  ChildLimits limits;
  limits.time = std::chrono::minutes(10);
  return limits;
}

ChildWords Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST(ChildProcessTest, InputComesBackAsOutput) {
  const ChildResult result = RunChild({"cat"}, "{\"x\": 1}", LongLimits());
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, "{\"x\": 1}");
  EXPECT_FALSE(result.output_cut);
  EXPECT_EQ(result.errors, "");
}

TEST(ChildProcessTest, WordsAreNotReadByAShell) {
  const ChildResult result = RunChild({"printf", "%s|", "$HOME", "a b", "*;"}, "", LongLimits());
  EXPECT_EQ(result.output, "$HOME|a b|*;|");
}

TEST(ChildProcessTest, ItsExitStatusAndItsErrorsAreKept) {
  const ChildResult result = RunChild(Shell("echo out; echo err >&2; exit 3"), "", LongLimits());
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
}

TEST(ChildProcessTest, ASignalIsNamed) {
  const ChildResult result = RunChild(Shell("kill -TERM $$"), "", LongLimits());
  EXPECT_EQ(result.end, End::kSignalled);
  EXPECT_EQ(result.code, SIGTERM);
}

TEST(ChildProcessTest, NoSuchProgram) {
  const ChildResult result = RunChild({"/nonexistent/tool"}, "", LongLimits());
  EXPECT_EQ(result.end, End::kNotStarted);
  EXPECT_EQ(result.code, ENOENT);
  const TemporaryFolder folder;
  folder.Write("text", "not a program");
  EXPECT_EQ(RunChild({folder.Path("text")}, "", LongLimits()).code, EACCES);
}

// More than a pipe holds, both ways at once.
TEST(ChildProcessTest, LongInputAndOutput) {
  const std::string input(3 << 20, 'x');
  ChildLimits limits = LongLimits();
  limits.output_max = size_t{8} << 20;
  const ChildResult result = RunChild({"cat"}, input, limits);
  EXPECT_EQ(result.output.size(), input.size());
  EXPECT_EQ(result.end, End::kExited);
}

TEST(ChildProcessTest, OutputAboveTheBoundIsDropped) {
  ChildLimits limits = LongLimits();
  limits.output_max = 5;
  limits.errors_max = 3;
  const ChildResult result = RunChild(Shell("cat; echo errors >&2"), "12345678", limits);
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, "12345");
  EXPECT_TRUE(result.output_cut);
  EXPECT_EQ(result.errors, "err");
  EXPECT_FALSE(RunChild({"cat"}, "12345", limits).output_cut);
}

// The test's process has the default action for SIGPIPE, which would end it.
TEST(ChildProcessTest, AProgramThatDoesNotReadItsInput) {
  const ChildResult result = RunChild({"true"}, std::string(1 << 20, 'x'), LongLimits());
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.code, 0);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST(ChildProcessTest, TheTimeLimitKillsIt) {
  ChildLimits limits;
  limits.time = std::chrono::milliseconds(1);
  const ChildResult result = RunChild({"sleep", "1000"}, "", limits);
  EXPECT_EQ(result.end, End::kTimedOut);
}

TEST(ChildProcessTest, OutputWithoutEndIsEndedByTheTimeLimit) {
  ChildLimits limits;
  limits.time = std::chrono::milliseconds(50);
  const ChildResult result = RunChild({"yes"}, "", limits);
  EXPECT_EQ(result.end, End::kTimedOut);
  EXPECT_LE(result.output.size(), limits.output_max);
}

// It is stopped after it says that it runs, and the file says that it did.
TEST(ChildProcessTest, TheCallerStopsIt) {
  const TemporaryFolder folder;
  const std::string file = folder.Path("runs");
  const ChildResult result = RunChild(Shell("echo begun; touch " + file + "; exec sleep 1000"), "",
                                      LongLimits(), [&] { return std::filesystem::exists(file); });
  EXPECT_EQ(result.end, End::kStopped);
  EXPECT_EQ(result.output, "begun\n");
}

// False for a zombie, which a killed process stays until its parent waits for it.
bool IsRunning(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return (in >> number >> name >> state) && state != "Z" && state != "X";
}

// The child leaves a process with its streams behind and ends: it is not waited for, and killed. If
// it were not, this test would not end.
TEST(ChildProcessTest, WhatItLeavesBehindIsKilled) {
  const ChildResult result = RunChild(Shell("sleep 1000 & echo $!"), "", LongLimits());
  EXPECT_EQ(result.end, End::kExited);
  const pid_t left = std::stoi(result.output);
  while (IsRunning(left)) sched_yield();
  EXPECT_FALSE(IsRunning(left));
}

}  // namespace
}  // namespace minisgl
