// Any line as a row of a prompt file and as a row to score, with the text part of the demo model:
// either rejected with an error row, or converted to prompts and answered. The output is one line
// of valid JSON in the row's format.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "batch/row.h"
#include "batch/row_output.h"
#include "batch/row_prompt.h"
#include "load/model_loader.h"
#include "minisgl/base/check.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"

namespace {

using namespace minisgl;

const TextModel& DemoText() {
  static const TextModel text = [] {
    load::ModelOptions options;
    options.model = MINISGL_SOURCE_DIR "/tests/models/wren";
    Result<TextModel> loaded = load::LoadTextModel(options);
    MINISGL_CHECK(loaded.ok(), "{}", loaded.status().message());
    return std::move(loaded).value();
  }();
  return text;
}

const batch::PromptBuilder& Builder() {
  static const batch::PromptBuilder builder = [] {
    EngineLimits limits;
    limits.vocab_size = DemoText().tokenizer->vocab_size();
    limits.page_size = 16;
    limits.num_pages = 64;
    limits.max_running_requests = 4;
    limits.max_seq_len = 512;
    limits.max_step_tokens = 64;
    return batch::PromptBuilder(&DemoText(), limits, {});
  }();
  return builder;
}

void CheckLine(const std::string& line, const batch::Row& row) {
  MINISGL_CHECK(line.find('\n') == line.size() - 1, "not one line");
  MINISGL_CHECK(IsValidUtf8(line), "wrote ill-formed text");
  const auto json = ParseJson(line);
  MINISGL_CHECK(json.ok(), "not JSON: {}", json.status().message());
  const Json* id = json->Find(batch::IsBatchFormat(row.format) ? "custom_id" : "id");
  MINISGL_CHECK(id != nullptr && *id == row.id, "not the row's id");
}

// The answer of a runtime to the first prompt of a row.
batch::RowAnswer AnswerTo(const Prompt& prompt, std::string_view text) {
  batch::RowAnswer answer;
  answer.text = text;
  answer.finish_reason = "stop";
  if (prompt.max_tokens != 0) answer.token_ids = prompt.ids;
  for (const TokenId id : answer.token_ids) {
    if (prompt.sampling.num_logprobs >= 0) answer.logprobs.push_back({id, -1.0f, {{id, -1.0f}}});
  }
  const auto begin = static_cast<size_t>(prompt.sampling.prompt_logprobs_begin);
  MINISGL_CHECK(begin >= 1, "log-probabilities of the first token");
  for (size_t i = begin; i < prompt.ids.size(); ++i) {
    if (prompt.sampling.num_prompt_logprobs < 0) break;
    answer.prompt_logprobs.push_back({prompt.ids[i], -1.0f, {{prompt.ids[i], -1.0f}}});
  }
  return answer;
}

void CheckRow(std::string_view text, bool lenient, batch::RowPurpose purpose) {
  batch::ParsedRow parsed = batch::ParseRow(text, 0, 1, lenient, purpose);
  std::vector<Prompt> prompts;
  if (!parsed.error) parsed.error = Builder().Build(&parsed.row, &prompts);
  if (parsed.error) {
    const std::string& message = parsed.error->message;
    MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
    return CheckLine(batch::FormatErrorRow(parsed.row, *parsed.error), parsed.row);
  }
  MINISGL_CHECK(prompts.size() == static_cast<size_t>(parsed.row.n), "not n prompts");
  const batch::RowAnswer answer = AnswerTo(prompts.front(), text);
  const std::vector<batch::RowAnswer> answers(prompts.size(), answer);
  CheckLine(batch::FormatAnswerRow(parsed.row, answers, *DemoText().tokenizer), parsed.row);
  if (purpose != batch::RowPurpose::kScore) return;
  MINISGL_CHECK(!answer.prompt_logprobs.empty(), "nothing to score");
}

// Rows whose texts get vectors, labels or scores: their prompts need a model of such.
void CheckTextsRow(std::string_view text, bool lenient, batch::RowPurpose purpose) {
  const batch::ParsedRow parsed = batch::ParseRow(text, 0, 1, lenient, purpose);
  if (parsed.error) {
    return CheckLine(batch::FormatErrorRow(parsed.row, *parsed.error), parsed.row);
  }
  const batch::Row& row = parsed.row;
  MINISGL_CHECK(!row.texts.empty(), "a row without a text");
  MINISGL_CHECK(row.queries.size() <= 1 || row.queries.size() == row.texts.size(), "queries");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool lenient : {false, true}) {
    CheckRow(text, lenient, batch::RowPurpose::kAnswer);
    CheckRow(text, lenient, batch::RowPurpose::kScore);
    for (const auto purpose :
         {batch::RowPurpose::kEmbed, batch::RowPurpose::kClassify, batch::RowPurpose::kRerank}) {
      CheckTextsRow(text, lenient, purpose);
    }
  }
  return 0;
}
