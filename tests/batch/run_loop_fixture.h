// Fixture for tests of the loop of `minisgl run` over a fake runtime.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batch/answer_writer.h"
#include "batch/run_loop.h"
#include "program/fakes.h"

namespace minisgl::batch {

class RunLoopTest : public ::testing::Test {
 protected:
  // Runs `input` as a prompt file and returns the rows written.
  std::vector<Json> RunFile(const std::string& input, bool ordered = true) {
    const Status status = RunTo(input, folder_.Path("out.jsonl"), ordered);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<Json> rows;
    for (const std::string& line : Lines(folder_.Read("out.jsonl"))) {
      Result<Json> row = ParseJson(line);
      EXPECT_TRUE(row.ok()) << line;
      rows.push_back(std::move(row).value());
    }
    return rows;
  }

  Status RunTo(const std::string& input, const std::string& output_path, bool ordered) {
    Result<LineReader> reader = LineReader::Open(folder_.Write("in.jsonl", input));
    EXPECT_TRUE(reader.ok());
    FileRowSource source(&*reader, false, true);
    return RunRows(&source, output_path, ordered);
  }

  Status RunRows(RowSource* source, const std::string& output_path, bool ordered) {
    Result<std::unique_ptr<term::Output>> output = term::Output::Open(output_path, true, -1);
    EXPECT_TRUE(output.ok()) << output.status().message();
    EXPECT_TRUE((*output)->Begin().ok());
    PromptBuilderOptions builder_options;
    builder_options.defaults = defaults_;
    builder_options.eos_ids = {ByteTokenizer::kEos};
    builder_options.truncate_left = truncate_left_;
    if (!tools_.empty()) builder_options.tools = &tools_;
    const PromptBuilder builder(&text_, runtime_.limits(), builder_options);
    JsonAnswerWriter writer(output->get(), text_.tokenizer.get(), ordered, streams_);
    term::Progress progress(term::ProgressKind::kNone, false);
    RunLoop loop(&runtime_, &builder, source, &writer, &progress, loop_options_);
    const Status status = loop.Run();
    rows_done_ = loop.rows_done();
    rows_failed_ = loop.rows_failed();
    return status;
  }

  void AnswerAtOnce() {
    runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
      runtime_.Answer(request, "to " + text_.tokenizer->Decode(request.prompt.ids, false));
    };
  }

  // Holds answers back until `count` requests are submitted, then delivers them in reverse order.
  void AnswerBackwards(size_t count) {
    runtime_.on_submit = [this, count](const FakeRuntime::Submission&) {
      if (runtime_.open.size() < count) return;
      for (auto request = runtime_.submissions.rbegin(); request != runtime_.submissions.rend();
           ++request) {
        if (runtime_.open.count(request->id) != 0) runtime_.Answer(*request, "x");
      }
    };
  }

  TemporaryFolder folder_;
  TextModel text_ = FakeTextModel();
  FakeRuntime runtime_{SmallLimits()};
  load::SamplingDefaults defaults_;
  RunLoopOptions loop_options_;
  bool truncate_left_ = false;
  bool streams_ = false;
  load::UserTools tools_;  // whose calls are run by loop_options_
  int64_t rows_done_ = 0, rows_failed_ = 0;
};

}  // namespace minisgl::batch
