#include "batch/row_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "batch/row_grammar.h"
#include "batch/row_messages.h"
#include "batch/row_thoughts.h"
#include "batch/row_tools.h"
#include "minisgl/base/edit_distance.h"
#include "minisgl/base/utf8.h"
#include "minisgl/sampling_fields.h"
#include "minisgl/text/chat_template.h"

namespace minisgl::batch {
namespace {

constexpr double kExactIntegers = 9007199254740992;  // 2^53: above it, doubles skip some integers
constexpr std::array<std::string_view, 3> kVerbosities = {"low", "medium", "high"};
constexpr size_t kIdBytesMax = 4096;
constexpr size_t kStopStringsMax = 64, kStopBytesMax = 4096, kStopIdsMax = 4096;
constexpr size_t kBiasesMax = 4096;
constexpr size_t kBadWordsMax = 4096, kBadWordsBytesMax = 65536;

template <auto kMember>
bool TakeNumber(Json& value, RowDraft* draft) {
  draft->row.*kMember = value.as_double();
  return true;
}

template <auto kMember>
bool TakeInt32(Json& value, RowDraft* draft) {
  draft->row.*kMember = static_cast<int32_t>(value.as_int());
  return true;
}

template <auto kMember>
bool TakeBool(Json& value, RowDraft* draft) {
  draft->row.*kMember = value.as_bool();
  return true;
}

// Only marks the metadata as present: its text is copied from the row later (row.cc).
bool TakeMetadata(Json&, RowDraft* draft) {
  draft->row.metadata.emplace();
  return true;
}

template <auto kMember>
bool TakeName(Json& value, RowDraft* draft) {
  draft->row.*kMember = std::move(value.as_string());
  return true;
}

template <auto kMember>
bool TakeJson(Json& value, RowDraft* draft) {
  draft->row.*kMember = std::move(value);
  return true;
}

bool TakeId(Json& value, RowDraft* draft) {
  const bool is_name =
      value.is_string() && !value.as_string().empty() && value.as_string().size() <= kIdBytesMax;
  // A larger number with a fraction or an exponent has lost digits, so that two different ids may
  // look the same.
  const bool is_exact =
      value.is_integer() || (value.is_double() && std::fabs(value.as_double()) < kExactIntegers);
  if (!is_name && !is_exact) return false;
  draft->row.id = std::move(value);
  return true;
}

// If a row has prompts of several kinds, ParseRow reports it; here the last one counts.
bool TakeText(Json& value, RowDraft* draft) {
  draft->row.kind = PromptKind::kText;
  draft->row.prompt = std::move(value.as_string());
  return true;
}

bool TakeIds(const Json& value, std::vector<TokenId>* ids) {
  ids->clear();
  ids->reserve(value.as_array().size());
  for (const Json& json : value.as_array()) {
    const int64_t id = ExactInteger(json).value_or(-1);
    if (id < 0 || id > std::numeric_limits<TokenId>::max()) return false;
    ids->push_back(static_cast<TokenId>(id));
  }
  return true;
}

bool TakePromptIds(Json& value, RowDraft* draft) {
  draft->row.kind = PromptKind::kTokenIds;
  return TakeIds(value, &draft->row.prompt_token_ids) && !draft->row.prompt_token_ids.empty();
}

// OpenAI's `prompt` is a string, an array of token ids, or an array of these.
bool TakePrompt(Json& value, RowDraft* draft) {
  if (value.is_string()) return TakeText(value, draft);
  if (!value.is_array() || value.as_array().empty()) return false;
  Json& first = value.as_array().front();
  const bool holds_prompts = first.is_string() || first.is_array();
  if (!holds_prompts) return TakePromptIds(value, draft);
  if (value.as_array().size() > 1) {
    draft->detail =
        fmt::format("prompt holds {} prompts; give each a row of its own", value.as_array().size());
    return false;
  }
  return first.is_string() ? TakeText(first, draft) : TakePromptIds(first, draft);
}

// -1 means all tokens, as usual for this parameter.
bool TakeTopK(Json& value, RowDraft* draft) {
  draft->row.top_k = static_cast<int32_t>(std::max<int64_t>(value.as_int(), 0));
  return true;
}

// -1 means any seed, as usual for this parameter. The row's index then determines it, so that a
// repeated run gives the same answers.
bool TakeSeed(Json& value, RowDraft* draft) {
  draft->row.any_seed = value == Json(-1);
  if (draft->row.any_seed) return true;
  draft->row.seed = value.is_uint() ? value.as_uint() : static_cast<uint64_t>(value.as_int());
  return true;
}

bool TakeScoredText(Json& value, RowDraft* draft) {
  draft->row.scored_text = std::move(value.as_string());
  return true;
}

// -1 means no limit, as usual for this parameter. 0 needs other fields, which may follow.
bool TakeMaxTokens(Json& value, RowDraft* draft) {
  draft->row.max_tokens = value.as_int();
  return true;
}

// A list of pairs, as llama.cpp's clients write it: a token id, and a bias or false, which forbids.
bool TakeBiasPairs(const Json::Array& pairs, RowDraft* draft) {
  if (pairs.size() > kBiasesMax) return false;
  for (const Json& pair : pairs) {
    if (!pair.is_array() || pair.as_array().size() != 2) return false;
    const std::optional<int64_t> id = ExactInteger(pair.as_array()[0]);
    const Json& bias = pair.as_array()[1];
    if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) return false;
    if (!(bias == Json(false)) && !(bias.is_number() && std::fabs(bias.as_double()) <= 100)) {
      return false;
    }
    const float value = bias.is_number() ? static_cast<float>(bias.as_double()) : -100.0F;
    draft->row.logit_bias.emplace_back(static_cast<TokenId>(*id), value);
  }
  return true;
}

bool TakeLogitBias(Json& value, RowDraft* draft) {
  if (value.is_array()) return TakeBiasPairs(value.as_array(), draft);
  if (!value.is_object() || value.as_object().size() > kBiasesMax) return false;
  for (const auto& [key, bias] : value.as_object()) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (key.empty() || error != std::errc() || end != key.data() + key.size() || id < 0)
      return false;
    if (!bias.is_number() || !(std::fabs(bias.as_double()) <= 100)) return false;
    draft->row.logit_bias.emplace_back(id, static_cast<float>(bias.as_double()));
  }
  return true;
}

bool TakeStop(Json& value, RowDraft* draft) {
  std::vector<std::string> stops;
  const auto take_one = [&stops](const Json& stop) {
    if (!stop.is_string() || stop.as_string().empty() || stop.as_string().size() > kStopBytesMax) {
      return false;
    }
    stops.push_back(stop.as_string());
    return true;
  };
  if (value.is_array()) {
    if (value.as_array().size() > kStopStringsMax) return false;
    for (const Json& stop : value.as_array()) {
      if (!take_one(stop)) return false;
    }
  } else if (!take_one(value)) {
    return false;
  }
  draft->row.stop = std::move(stops);
  return true;
}

bool TakeStopIds(Json& value, RowDraft* draft) {
  return value.as_array().size() <= kStopIdsMax && TakeIds(value, &draft->row.stop_token_ids);
}

bool TakeBadWords(Json& value, RowDraft* draft) {
  if (value.as_array().size() > kBadWordsMax) return false;
  std::vector<std::string> words;
  size_t num_bytes = 0;
  for (const Json& word : value.as_array()) {
    if (!word.is_string() || word.as_string().empty()) return false;
    num_bytes += word.as_string().size();
    if (num_bytes > kBadWordsBytesMax) return false;
    words.push_back(word.as_string());
  }
  draft->row.bad_words = std::move(words);
  return true;
}

bool TakeAllowedIds(Json& value, RowDraft* draft) {
  std::vector<TokenId>& ids = draft->row.allowed_token_ids;
  if (!TakeIds(value, &ids)) return false;
  std::set<TokenId> seen;
  std::erase_if(ids, [&seen](TokenId id) { return !seen.insert(id).second; });
  return !ids.empty();
}

bool TakeSkipSpecial(Json& value, RowDraft* draft) {
  draft->row.keep_special = !value.as_bool();
  return true;
}

bool TakeAddGenerationPrompt(Json& value, RowDraft* draft) {
  draft->add_generation_prompt = value.as_bool();
  return true;
}

bool TakeContinue(Json& value, RowDraft* draft) {
  if (value.as_bool()) draft->row.start = AnswerStart::kContinue;
  return true;
}

bool TakeLogprobs(Json& value, RowDraft* draft) {
  if (value.is_bool()) {
    draft->logprobs = value;
    return true;
  }
  const int64_t count = ExactInteger(value).value_or(-1);
  if (!kNumLogprobs.range.Holds(count)) return false;
  draft->logprobs = Json(count);
  return true;
}

bool TakeTopLogprobs(Json& value, RowDraft* draft) {
  draft->top_logprobs = static_cast<int32_t>(value.as_int());
  return true;
}

// Rejects names that the program itself always sets in the template.
bool TakeTemplateKwargs(Json& value, RowDraft* draft) {
  for (const auto& [key, argument] : value.as_object()) {
    if (!ChatTemplate::Sets(key)) continue;
    draft->detail_field = "chat_template_kwargs." + key;
    draft->detail = draft->detail_field + " is set by the program; leave it out";
    return false;
  }
  draft->row.template_kwargs = std::move(value);
  return true;
}

bool TakeVerbosity(Json& value, RowDraft* draft) {
  const std::string& verbosity = value.as_string();
  if (std::find(kVerbosities.begin(), kVerbosities.end(), verbosity) == kVerbosities.end()) {
    return false;
  }
  draft->row.verbosity = verbosity;
  return true;
}

bool TakeIncludeReasoning(Json& value, RowDraft* draft) {
  draft->row.hide_reasoning = !value.as_bool();
  return true;
}

bool TakeSession(Json& value, RowDraft* draft) {
  if (value.as_string().empty() || value.as_string().size() > kIdBytesMax) return false;
  draft->row.session = value.as_string();
  return true;
}

bool TakeAddSpecial(Json& value, RowDraft* draft) {
  draft->add_special_tokens = value.as_bool();
  return true;
}

// One text: a string, or an array of token ids.
bool TakeEmbeddedText(Json& value, RowDraft* draft) {
  EmbeddedText text;
  if (value.is_string()) {
    text.text = std::move(value.as_string());
  } else if (!value.is_array() || value.as_array().empty() || !TakeIds(value, &text.ids)) {
    return false;
  }
  draft->row.texts.push_back(std::move(text));
  return true;
}

bool TakeTexts(Json& value, RowDraft* draft) {
  const bool is_list = value.is_array() && !value.as_array().empty() &&
                       (value.as_array()[0].is_string() || value.as_array()[0].is_array());
  draft->row.is_one_text = !is_list;
  if (!is_list) return TakeEmbeddedText(value, draft);
  Json::Array& list = value.as_array();
  if (list.size() > kTextsMax) {
    draft->detail = fmt::format("a row has at most {} texts (found {})", kTextsMax, list.size());
    return false;
  }
  return std::all_of(list.begin(), list.end(),
                     [draft](Json& text) { return TakeEmbeddedText(text, draft); });
}

bool TakeQuery(Json& value, RowDraft* draft) {
  draft->row.queries = {std::move(value.as_string())};
  return true;
}

bool TakeQueries(Json& value, RowDraft* draft) {
  if (value.is_string()) return TakeQuery(value, draft);
  if (!value.is_array() || value.as_array().size() > kTextsMax) return false;
  for (Json& query : value.as_array()) {
    if (!query.is_string()) return false;
    draft->row.queries.push_back(std::move(query.as_string()));
  }
  return !draft->row.queries.empty();
}

bool TakeSecondTexts(Json& value, RowDraft* draft) {
  if (value.is_string()) {
    draft->row.second_texts = {std::move(value.as_string())};
    return true;
  }
  if (!value.is_array() || value.as_array().size() > kTextsMax) return false;
  for (Json& text : value.as_array()) {
    if (!text.is_string()) return false;
    draft->row.second_texts.push_back(std::move(text.as_string()));
  }
  return !draft->row.second_texts.empty();
}

bool TakeDocument(Json& value, RowDraft* draft) {
  Json* const text = value.is_object() ? value.Find("text") : &value;
  if (text == nullptr || !text->is_string()) return false;
  draft->row.texts.push_back({std::move(text->as_string()), {}});
  return true;
}

// A list is checked before any of it is moved: an error quotes it.
bool TakeDocuments(Json& value, RowDraft* draft) {
  if (!value.is_array()) return TakeDocument(value, draft);
  Json::Array& list = value.as_array();
  const bool is_valid = !list.empty() && list.size() <= kTextsMax &&
                        std::all_of(list.begin(), list.end(), [](const Json& document) {
                          const Json* const text =
                              document.is_object() ? document.Find("text") : &document;
                          return text != nullptr && text->is_string();
                        });
  return is_valid && std::all_of(list.begin(), list.end(),
                                 [draft](Json& document) { return TakeDocument(document, draft); });
}

bool TakeInstruction(Json& value, RowDraft* draft) {
  draft->row.instruction = std::move(value.as_string());
  return true;
}

// 0 is the default of clients, and means all.
bool TakeTopN(Json& value, RowDraft* draft) {
  if (value.as_int() > 0) draft->row.top_n = value.as_int();
  return true;
}

bool TakeDimensions(Json& value, RowDraft* draft) {
  draft->row.dimensions = value.as_int();
  return true;
}

bool TakeEncodingFormat(Json& value, RowDraft* draft) {
  draft->row.in_base64 = value == Json("base64");
  return draft->row.in_base64 || value == Json("float");
}

using enum FieldType;

constexpr const char* kExpectsTexts =
    "a string, an array of strings, an array of token ids, or an array of those";
constexpr const char* kExpectsStrings = "a string, or an array of strings";
constexpr const char* kExpectsDocuments =
    "an array of at most 2048 strings, or of objects with a \"text\"";
constexpr const char* kExpectsIds = "an array of token ids";
constexpr const char* kExpectsId =
    "a string of 1 to 4096 bytes, an integer, or another number below 2^53";
constexpr const char* kExpectsBool = "true or false";
constexpr const char* kExpectsLimit = "an integer from 1 to 2147483647, or -1 for no limit";

constexpr const char* kExpectsBudget = "an integer from 0 to 2147483647, or -1 for no limit";

constexpr uint8_t kAnyRow = kAnywhere | kInScored | kInEmbedded | kInRanked;
constexpr uint8_t kScoredChat = kChat | kInScored;

constexpr NumberRange AsNumbers(IntRange range) {
  return {static_cast<double>(range.min), static_cast<double>(range.max)};
}

constexpr NumberRange kLimit = AsNumbers(FromMinusOne(kMaxTokensRange));  // except 0
constexpr NumberRange kBudget = AsNumbers(FromMinusOne(kMaxTokensRange));
constexpr NumberRange kLogprobsRange = AsNumbers(kNumLogprobs.range);
constexpr NumberRange kMinTokensRange = AsNumbers(kMinTokens.range);
static_assert(kMaxTokensRange.max == 2147483647 && kNumLogprobs.range.max == 20);  // words below

// A parameter of the table of sampling parameters.
template <const NumberField& kField>
constexpr RowField Sampled() {
  return {kField.name,  kNumber,  nullptr, TakeNumber<kField.override_value>,
          kField.range, kSampling};
}

// clang-format off
constexpr RowField kFields[] = {
    {"id", kAny, kExpectsId, TakeId, kNoRange, kAtTop | kInScored | kInEmbedded | kInRanked},
    {"custom_id", kAny, kExpectsId, TakeId, kNoRange, kAtTop | kInScored | kInEmbedded | kInRanked,
     "id"},

    {"prompt", kAny, "a string, or an array of token ids", TakePrompt, kNoRange, kCompletion},
    {"text", kString, "a string", TakeText, kNoRange, kAtTop, "prompt"},
    {"prompt", kString, "a string", TakeText, kNoRange, kInScored},
    {"text", kString, "a string", TakeScoredText, kNoRange, kInScored},
    {"text", kAny, kExpectsTexts, TakeTexts, kNoRange, kInEmbedded | kInRanked, "input"},
    {"input", kAny, kExpectsTexts, TakeTexts, kNoRange, kInEmbedded | kInRanked},
    {"dimensions", kInteger, nullptr, TakeDimensions, {1, 65536}, kInEmbedded},
    {"encoding_format", kString, "float or base64", TakeEncodingFormat, kNoRange, kInEmbedded},
    {"messages", kArray, "an array of one message or more", TakeMessages, kNoRange,
     kScoredChat | kInRanked},
    {"query", kString, "a string", TakeQuery, kNoRange, kInRanked, "queries"},
    {"queries", kAny, kExpectsStrings, TakeQueries, kNoRange, kInRanked},
    {"text_1", kAny, kExpectsStrings, TakeQueries, kNoRange, kInRanked, "queries"},
    {"data_1", kAny, kExpectsStrings, TakeQueries, kNoRange, kInRanked, "queries"},
    {"documents", kAny, kExpectsDocuments, TakeDocuments, kNoRange, kInRanked},
    {"text_2", kAny, kExpectsDocuments, TakeDocuments, kNoRange, kInRanked, "documents"},
    {"data_2", kAny, kExpectsDocuments, TakeDocuments, kNoRange, kInRanked, "documents"},
    {"items", kAny, kExpectsDocuments, TakeDocuments, kNoRange, kInRanked, "documents"},
    {"document", kString, "a string", TakeTexts, kNoRange, kInRanked, "input"},
    {"text_pair", kAny, kExpectsStrings, TakeSecondTexts, kNoRange, kInRanked},
    {"instruction", kString, "a string", TakeInstruction, kNoRange, kInRanked},
    {"top_n", kInteger, nullptr, TakeTopN, {0, 1e9}, kInRanked},
    {"return_documents", kBool, kExpectsBool, TakeBool<&Row::returns_documents>, kNoRange,
     kInRanked},
    {"prompt_token_ids", kArray, kExpectsIds, TakePromptIds, kNoRange, kAtTop},
    {"input_ids", kArray, kExpectsIds, TakePromptIds, kNoRange, kAtTop, "prompt_token_ids"},

    Sampled<kTemperature>(),
    {kTopK.name, kInteger, nullptr, TakeTopK, AsNumbers(FromMinusOne(kTopK.range)), kSampling},
    Sampled<kTopP>(),
    Sampled<kMinP>(),
    Sampled<kRepetitionPenalty>(),
    Sampled<kPresencePenalty>(),
    Sampled<kFrequencyPenalty>(),
    {"logit_bias", kAny,
     "an object of token ids, each with a number from -100 to 100, or an array of such pairs",
     TakeLogitBias, kNoRange, kSampling},
    {"seed", kInteger, "an integer of 64 bits", TakeSeed, kNoRange, kSampling},
    {"sampling_seed", kInteger, "an integer of 64 bits", TakeSeed, kNoRange, kInSamplingParams,
     "seed"},
    {"max_tokens", kInteger, kExpectsLimit, TakeMaxTokens, kLimit, kSampling},
    {"max_completion_tokens", kInteger, kExpectsLimit, TakeMaxTokens, kLimit, kChat,
     "max_tokens"},
    {"max_new_tokens", kInteger, kExpectsLimit, TakeMaxTokens, kLimit,
     kAtTop | kInSamplingParams, "max_tokens"},
    {"min_tokens", kInteger, nullptr, TakeInt32<&Row::min_tokens>, kMinTokensRange, kSampling},
    {"min_new_tokens", kInteger, nullptr, TakeInt32<&Row::min_tokens>, kMinTokensRange,
     kInSamplingParams, "min_tokens"},
    {"stop", kAny, "a string, or an array of at most 64 strings, none empty", TakeStop, kNoRange,
     kSampling},
    {"stop_token_ids", kArray, kExpectsIds, TakeStopIds, kNoRange, kSampling},
    {"bad_words", kArray, "an array of at most 4096 strings, none empty, of 65536 bytes together",
     TakeBadWords, kNoRange, kSampling},
    {"allowed_token_ids", kArray, "an array of one token id or more", TakeAllowedIds, kNoRange,
     kSampling},
    {"include_stop_str_in_output", kBool, kExpectsBool, TakeBool<&Row::include_stop>, kNoRange,
     kSampling},
    {"skip_special_tokens", kBool, kExpectsBool, TakeSkipSpecial, kNoRange, kSampling},
    {"ignore_eos", kBool, kExpectsBool, TakeBool<&Row::ignore_eos>, kNoRange, kSampling},
    {"n", kInteger, nullptr, TakeInt32<&Row::n>, kAnswers, kSampling},
    {"logprobs", kAny, "true, false, or an integer from 0 to 20", TakeLogprobs, kNoRange,
     kAtTop | kInSamplingParams},
    {"logprobs", kBool, "true or false (top_logprobs says how many)", TakeLogprobs, kNoRange,
     kInChat},
    {"logprobs", kInteger, nullptr, TakeLogprobs, kLogprobsRange, kInCompletion},
    {"top_logprobs", kInteger, nullptr, TakeTopLogprobs, kLogprobsRange, kChat},
    {"prompt_logprobs", kInteger, nullptr, TakeInt32<&Row::num_prompt_logprobs>, kLogprobsRange,
     kSampling},
    {"echo", kBool, kExpectsBool, TakeBool<&Row::echo>, kNoRange, kCompletion},

    {"response_format", kObject, "an object", TakeResponseFormat},
    {"structured_outputs", kObject, "an object", TakeStructuredOutputs, kNoRange, kSampling},
    {"guided_json", kAny, "a JSON schema", TakeGuidedJson, kNoRange, kSampling},
    {"guided_regex", kString, "a string", TakeGuidedRegex, kNoRange, kSampling},
    {"guided_choice", kArray, "an array of one string or more", TakeGuidedChoice, kNoRange,
     kSampling},
    {"guided_grammar", kString, "a string", TakeGuidedGrammar, kNoRange, kSampling},

    {"session", kString, "a string of 1 to 4096 bytes", TakeSession, kNoRange, kAtTop},
    {"append", kBool, kExpectsBool, TakeBool<&Row::append>, kNoRange, kAtTop},
    {"answer_all_turns", kBool, kExpectsBool, TakeBool<&Row::all_turns>, kNoRange, kAtTop},

    {"priority", kInteger, nullptr, TakeInt32<&Row::priority>, {-1e6, 1e6}, kAnyRow},
    {"timeout_s", kNumber, "a number of seconds above 0 and at most 1e9",
     TakeNumber<&Row::timeout_s>, {0, 1e9, true}, kAnyRow},
    {"tools", kArray, "an array", TakeJson<&Row::tools>, kNoRange, kScoredChat},
    {"tool_choice", kAny, kExpectsToolChoice, TakeToolChoice, kNoRange, kChat | kUnsupported},
    {"parallel_tool_calls", kBool, kExpectsBool, TakeParallelCalls, kNoRange, kChat},
    {"parse_tool_calls", kBool, kExpectsBool, TakeParseCalls},
    {"documents", kArray, "an array", TakeJson<&Row::documents>, kNoRange, kScoredChat},
    {"chat_template_kwargs", kObject, "an object", TakeTemplateKwargs, kNoRange, kScoredChat},
    {"continue_final_message", kBool, kExpectsBool, TakeContinue, kNoRange, kChat},
    {"add_generation_prompt", kBool, kExpectsBool, TakeAddGenerationPrompt, kNoRange, kChat},
    {"verbosity", kString, "low, medium or high", TakeVerbosity, kNoRange, kScoredChat},
    {"include_reasoning", kBool, kExpectsBool, TakeIncludeReasoning, kNoRange, kChat},
    {"reasoning_effort", kString, kExpectsEffort, TakeReasoningEffort, kNoRange, kScoredChat},
    {"reasoning", kObject, "an object", TakeReasoning, kNoRange, kChat},
    {"thinking_token_budget", kInteger, kExpectsBudget, TakeThoughtBudget, kBudget, kSampling},
    {"thinking_budget_tokens", kInteger, kExpectsBudget, TakeThoughtBudget, kBudget, kSampling,
     "thinking_token_budget"},
    {"reasoning_budget_tokens", kInteger, kExpectsBudget, TakeThoughtBudget, kBudget, kSampling,
     "thinking_token_budget"},
    {"thinking_budget", kInteger, kExpectsBudget, TakeThoughtBudget, kBudget, kSampling,
     "thinking_token_budget"},
    {"reasoning_budget_message", kString, "a string of at most 4096 bytes", TakeThoughtMessage,
     kNoRange, kSampling},
    {"add_special_tokens", kBool, kExpectsBool, TakeAddSpecial, kNoRange,
     kCompletion | kInScored | kInEmbedded | kInRanked},
    {"return_token_ids", kBool, kExpectsBool, TakeBool<&Row::return_token_ids>},
    {"metadata", kAny, "any JSON", TakeMetadata, kNoRange, kAnyRow},
    {"model", kString, "a string", TakeName<&Row::model>, kNoRange, kAnyRow},
    {"adapter", kString, "the name of an adapter", TakeName<&Row::adapter>, kNoRange, kAnyRow},
};
// clang-format on

}  // namespace

std::string_view NearestField(std::string_view name, FieldFlags place) {
  std::vector<std::string_view> fields;
  for (const std::span<const RowField> part : {RowFields(), ForeignFields()}) {
    for (const RowField& field : part) {
      if ((field.flags & place) != 0) fields.push_back(field.name);
    }
  }
  return NearestName(name, fields, TypoDistanceMax(name));
}

std::span<const RowField> RowFields() { return kFields; }

const RowField* FindRowField(std::string_view name, FieldFlags place) {
  for (const std::span<const RowField> part : {RowFields(), ForeignFields()}) {
    for (const RowField& field : part) {
      if (name == field.name && (field.flags & place) != 0) return &field;
    }
  }
  return nullptr;
}

std::optional<int64_t> ExactInteger(const Json& value) {
  if (value.is_int()) return value.as_int();
  if (!value.is_double()) return std::nullopt;
  const double number = value.as_double();
  if (!(std::fabs(number) < kExactIntegers) || std::trunc(number) != number) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::string Expects(const RowField& field) {
  const NumberRange& range = field.range;
  if (field.expects != nullptr) return field.expects;
  if (field.type == kNumber) return Describe(range);
  return Describe(IntRange{static_cast<int64_t>(range.min), static_cast<int64_t>(range.max)});
}

bool InRange(const RowField& field, const Json& value) {
  switch (field.type) {
    case kBool:
      return value.is_bool();
    case kInteger:
      return (value.is_int() || value.is_uint()) && field.range.Holds(value.as_double());
    case kNumber:
      return value.is_number() && field.range.Holds(value.as_double());
    case kString:
      return value.is_string();
    case kArray:
      return value.is_array();
    case kObject:
      return value.is_object();
    case kAny:
      return true;
  }
  return false;
}

}  // namespace minisgl::batch
