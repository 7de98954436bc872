// Converts a checked row into the input of the runtime: token ids, sampling parameters, and stop
// conditions.
//
// The way of a prompt is Build: take (row_conversation.h), render and encode (minisgl/text), check
// (prompt_checks.cc), settings (prompt_settings.cc). Each stage takes what the one before it made.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch/grammar_texts.h"
#include "batch/image_reader.h"
#include "batch/row.h"
#include "batch/run_notes.h"
#include "batch/said_so_far.h"
#include "batch/texts_row.h"
#include "load/image_options.h"
#include "load/model_loader.h"
#include "load/sampling.h"
#include "load/user_tools.h"
#include "minisgl/engine/engine.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/conversation.h"
#include "minisgl/text/encode_prompt.h"
#include "minisgl/text/prepared_pictures.h"
#include "minisgl/text/render_prompt.h"
#include "minisgl/text/text_model.h"
#include "minisgl/weights/vector_pipeline.h"

namespace minisgl::batch {

// Longest prompt and answer together that `limits` allow; the prompt alone must be shorter.
int64_t ContextCapacity(const EngineLimits& limits);

// How texts become vectors.
struct EmbeddingOptions {
  const VectorPipeline* pipeline = nullptr;  // outlives the builder
  std::string prompt;                        // stands before each text
  // Documents that are ranked: in a template with their query, or beside it as a text of its own
  // that the model reads with it; neither: query and documents become vectors.
  const RerankTemplate* form = nullptr;
  const PairFrame* pair = nullptr;  // of the tokenizer
  bool has_types = false;           // tokens of pairs have types
  RankDefaults rank;                // the same
  std::optional<int64_t> width;     // all vectors of an array must have it
  std::optional<TokenId> pad_id;    // that is left out at the end of a text
};

struct PromptBuilderOptions {
  // The defaults of rows. A row without a seed gets a hash of `sampling.seed` and the row's index.
  load::SamplingDefaults defaults;
  std::vector<TokenId> eos_ids;
  bool truncate_left = false;          // cut a prompt that is too long instead of rejecting it
  bool chat = false;                   // a row's prompt is a user message, not text to complete
  std::optional<std::string> system;   // with `chat`: the system message before it
  std::optional<std::string> prefill;  // the beginning of every answer to messages
  bool hide_reasoning = false;
  bool row_metrics = false;
  std::optional<double> timeout_s;  // of rows that set none
  load::ImageOptions images;
  std::string image_folder;  // what the paths of rows' pictures are relative to (FolderOfRows)
  // Pictures are laid out, so that their tokens are counted, and not decoded: the prompts cannot
  // be run.
  bool counts_only = false;
  EmbeddingOptions embedding;  // for rows whose texts become vectors
  // The tools whose calls are run; null: none. They outlive the builder.
  const load::UserTools* tools = nullptr;
};

// Thread-safe.
class PromptBuilder {
 public:
  // `text` must outlive this.
  PromptBuilder(const TextModel* text, const EngineLimits& limits, PromptBuilderOptions options);

  // Builds one prompt for each of row->n answers, or returns an error.
  // - Changes to the prompt become warnings of the row; its reasoning tags are set.
  // - A prompt that leaves no room for an answer is length_exceeded, or is cut if truncate_left.
  // - The parts of the row that only the prompt needs are moved out of it.
  // - If `cancelled` is not null and becomes true during the call, an error is returned soon after.
  // - If `said` is not null, the prompt goes on with it: of a row of a session, or with all_turns,
  //   whose next turn it is. It has the prompt afterwards.
  std::optional<RowError> Build(Row* row, std::vector<Prompt>* prompts,
                                const std::atomic<bool>* cancelled = nullptr,
                                SaidSoFar* said = nullptr) const;

  // Before Build, with options' tools: gives them to a row that names no tools itself, and sets
  // row->runs_calls if one of the row's tools is among them. Returns an error if such a row asks
  // for what it cannot have.
  std::optional<RowError> OfferTools(Row* row) const;

  int64_t capacity() const { return capacity_; }
  // The length of an answer to the row is limited by the model's generation_config.json.
  bool LimitsByModel(const Row& row) const;
  const TextModel& text() const { return *text_; }

 private:
  // A prompt that leaves room for its answer.
  struct CheckedPrompt {
    EncodedPrompt encoded;
    bool is_cut = false;  // the end of a longer prompt
  };

  // prompt_calls.cc: how the calls in its answers are read. An error if the row asks for a call
  // that cannot be had.
  std::optional<RowError> SetCalls(Row* row) const;
  std::optional<RowError> ConstrainCalls(Row* row) const;
  // Its prompt goes through the chat template.
  bool IsForTemplate(const Row& row) const;

  // row_conversation.cc: what the row asks, with what its session said so far; null: nothing.
  std::optional<RowError> Take(Row* row, SaidSoFar* said, Conversation* conversation) const;
  std::optional<RowError> TakeNext(Row* row, SaidSoFar* said, Conversation* conversation) const;
  // `begins`: no row of its session came before.
  void AskInChat(Row* row, bool begins) const;
  // Puts the beginning of every answer behind the row's messages, unless it has its own.
  void AddPrefill(Row* row) const;
  std::optional<RowError> CheckIds(const Row& row) const;

  // Encodes no further than a prompt may be long.
  std::optional<RowError> Encode(const Row& row, RenderedPrompt rendered,
                                 const std::atomic<bool>* cancelled, EncodedPrompt* encoded) const;

  // prompt_checks.cc. `goes_on`: with a session, or more turns. A prompt with pictures is not cut.
  std::optional<RowError> Check(Row* row, bool goes_on, bool has_images, EncodedPrompt encoded,
                                CheckedPrompt* checked) const;
  std::optional<RowError> CheckLength(const Row& row, const EncodedPrompt& encoded,
                                      bool has_images = false) const;
  std::optional<RowError> CheckMinTokens(const Row& row, int64_t max_tokens) const;
  // The most tokens of the row's prompt: one less than the context, if an answer follows.
  int64_t PromptMax(const Row& row) const;
  bool Truncate(Row* row, int64_t max_tokens, EncodedPrompt* encoded) const;

  // What the prompt's pictures are for the model.
  std::optional<RowError> MakeImages(const Row& row, const EncodedPrompt& encoded,
                                     PromptImages* images) const;

  // row_adapter.cc: what the prompt goes through beside the model.
  std::optional<RowError> SetAdapter(const Row& row, Prompt* prompt) const;

  // prompt_settings.cc
  std::optional<RowError> SetSettings(Row* row, CheckedPrompt checked, PromptImages images,
                                      std::vector<Prompt>* prompts) const;
  load::AnswerSettings SettingsOf(const Row& row) const;
  void SetGrammar(Row* row, Prompt* prompt) const;
  void CheckThoughtBudget(Row* row, Prompt* prompt) const;
  void ShowPrompt(Row* row, bool is_cut, Prompt* prompt) const;

  // embedded_prompts.cc: a prompt for each text.
  std::optional<RowError> BuildEmbedded(Row* row, std::vector<Prompt>* prompts,
                                        const std::atomic<bool>* cancelled) const;
  // What stands around the ids of each text and is never cut.
  struct TextFrame {
    std::vector<TokenId> before, after;
  };
  TextFrame FrameOf(const Row& row) const;
  std::optional<RowError> EncodeMessages(Row* row, const std::atomic<bool>* cancelled,
                                         std::vector<TokenId>* ids) const;
  // The most tokens of a text.
  int64_t TextMax() const;
  // What all prompts of the row have in common: no ids.
  Prompt BeginEmbedded(const Row& row) const;
  // ranked_pairs.cc: a prompt for each pair of a query and a document.
  std::optional<RowError> BuildPairs(Row* row, std::vector<Prompt>* prompts,
                                     const std::atomic<bool>* cancelled) const;
  // The number of tokens at the beginning of each text that are the prompt's and do not count.
  int64_t PromptLength(const TextFrame& frame, int64_t most) const;
  // The ids of a text without those that the tokenizer adds.
  std::optional<RowError> EncodeText(EmbeddedText text, const std::atomic<bool>* cancelled,
                                     std::vector<TokenId>* ids) const;

  // scored_prompt.cc: the one prompt of a row to score.
  struct ScoredPrompt {
    RenderedPrompt before;  // what stands before the text
    std::string text;       // what is scored
  };
  std::optional<RowError> BuildScored(Row* row, std::vector<Prompt>* prompts,
                                      const std::atomic<bool>* cancelled) const;
  std::optional<RowError> RenderScoredPrompt(const Row& row, const std::atomic<bool>* cancelled,
                                             ScoredPrompt* scored) const;
  std::optional<RowError> RenderScoredMessages(Row* row, const std::atomic<bool>* cancelled,
                                               ScoredPrompt* scored) const;
  // Encodes both parts together. Tokens from `begin` on are scored.
  std::optional<RowError> EncodeScored(Row* row, ScoredPrompt scored,
                                       const std::atomic<bool>* cancelled, EncodedPrompt* whole,
                                       int64_t* begin) const;

  const TextModel* text_;
  const int64_t vocab_size_;
  const int64_t capacity_;
  const PromptBuilderOptions options_;
  const ImageReader image_reader_;  // thread-safe
  ReasoningTags reasoning_;
  std::vector<TokenId> kept_special_ids_;  // of the reasoning tags
  ToolDialect tool_dialect_ = ToolDialect::kNone;
  std::vector<TokenId> call_ids_;       // the control tokens among its marks
  mutable SharedCallRules call_rules_;  // thread-safe
  mutable GrammarTexts grammar_texts_;  // thread-safe, like the next
  mutable PreparedPictures prepared_;   // of the last rows
  mutable RunNotes notes_;              // thread-safe
};

}  // namespace minisgl::batch
