// A prompt file that is answered in the background of a chat, by the same runtime: as `minisgl run`
// would, at the priority of rows, which every turn of the chat goes before.
//
// The file is read and answers are written by a thread of this class's own; all calls come from the
// chat's.
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
  bool force = false;   // an output that is not empty is replaced
  bool resume = false;  // an output of an earlier run is gone on with
  // Those of the command line; rows that do not say otherwise are sampled so.
  load::ModelOptions model;
  load::EngineOptions engine;
  load::SamplingOptions sampling;
  bool hide_reasoning = false;  // it is left out of the rows
};

class ChatBatch {
 public:
  // Checks both files as run does, writes the journal, and begins. `model` outlives this.
  static Result<std::unique_ptr<ChatBatch>> Start(const load::LoadedModel* model,
                                                  ChatBatchOptions options);
  // Stops at once, if it has not ended.
  ~ChatBatch();
  ChatBatch(const ChatBatch&) = delete;
  ChatBatch& operator=(const ChatBatch&) = delete;

  // What was asked has some seconds to finish, or none; the other rows are cancelled.
  void Stop(bool at_once);
  bool stopping() const { return stop_; }
  bool ended() const { return ended_; }

  int64_t rows_asked() const { return *loop_options_.rows_total; }
  int64_t rows_left() const;
  // Whether all rows have answers. REQUIRES ended().
  bool succeeded() const;
  // A word or two for the prompt: "[batch 12/60]".
  std::string Short() const;
  // One line on where it stands, or on how it ended.
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
  int64_t failed_before_ = 0;  // rows of an earlier run that stay

  std::atomic<bool> stop_ = false, stop_at_once_ = false;
  std::atomic<bool> ended_ = false;
  mutable std::mutex mutex_;  // of what follows
  term::Progress::Numbers numbers_;
  batch::Failures failures_;  // of the end
  Status status_;             // of the end
  std::chrono::steady_clock::time_point begin_, end_;
  std::thread thread_;
};

// Where the answers to `input` go if nobody says: beside it, as NAME.answers.jsonl.
std::string DefaultAnswersPath(const std::string& input);

}  // namespace minisgl::chat
