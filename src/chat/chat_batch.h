// Answers a prompt file in the background of a chat with the same runtime, like `minisgl run`, at
// the priority of rows: every turn of the chat goes first.
//
// A thread of this class reads the file and writes the answers; all calls come from the chat's
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "batch/row_prompt.h"
#include "batch/row_source.h"
#include "batch/run_input.h"
#include "batch/run_loop.h"
#include "batch/run_options.h"
#include "batch/run_output.h"
#include "load/model_loader.h"
#include "load/options.h"
#include "minisgl/base/status.h"

namespace minisgl::chat {

struct ChatBatchOptions {
  std::string input, output;
  bool force = false;   // replace an output that is not empty
  bool resume = false;  // continue the output of an earlier run
  // Options of the command line: the defaults for rows.
  load::ModelOptions model;
  load::EngineOptions engine;
  load::SamplingOptions sampling;
  load::ImageOptions images;
  bool hide_reasoning = false;  // leave reasoning out of the rows
};

class ChatBatch {
 public:
  // Checks both files like `run`, writes the journal, and starts. `model` must outlive this.
  static Result<std::unique_ptr<ChatBatch>> Start(const load::LoadedModel* model,
                                                  ChatBatchOptions options);
  // Stops at once, unless the batch has ended.
  ~ChatBatch();
  ChatBatch(const ChatBatch&) = delete;
  ChatBatch& operator=(const ChatBatch&) = delete;

  // Cancels the remaining rows; running ones have some seconds to finish, or none if `at_once`.
  void Stop(bool at_once);
  bool stopping() const { return stop_; }
  bool ended() const { return ended_; }

  int64_t num_rows() const { return *loop_options_.rows_total; }
  int64_t rows_left() const;
  // True if all rows have answers. REQUIRES ended().
  bool succeeded() const;
  // Short status for the prompt: "[batch 12/60]".
  std::string Short() const;
  // Status or result in one line.
  std::string Long() const;

 private:
  ChatBatch() = default;
  Status OpenFiles(const load::LoadedModel& model, const ChatBatchOptions& options);
  void Run();
  Status RunRows();

  Runtime* runtime_ = nullptr;
  std::string input_, output_name_;
  std::unique_ptr<batch::LineReader> reader_;
  batch::FileCheck check_;
  batch::RowSelection asked_;
  std::unique_ptr<batch::RowSource> source_;
  std::unique_ptr<batch::RunOutput> output_;
  std::unique_ptr<batch::PromptBuilder> prompts_;
  std::unique_ptr<batch::AnswerWriter> writer_;
  batch::RunLoopOptions loop_options_;
  int64_t failed_before_ = 0;  // rows of an earlier run that are kept

  std::atomic<bool> stop_ = false, stop_at_once_ = false;
  std::atomic<bool> ended_ = false;
  mutable std::mutex mutex_;  // guards the members below
  term::Progress::Numbers numbers_;
  batch::Failures failures_;  // set at the end
  Status status_;             // set at the end
  std::chrono::steady_clock::time_point begin_, end_;
  std::thread thread_;
};

// Default for the answers to `input`: NAME.answers.jsonl in the same directory.
std::string DefaultAnswersPath(const std::string& input);

// Parses the arguments of /batch: flags for an existing output, the input, and the output if given.
ChatBatchOptions ParseBatchArguments(std::string arguments);

}  // namespace minisgl::chat
