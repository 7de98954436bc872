// The part of the table of row fields that has the fields of other programs' requests: OpenAI's,
// vLLM's, SGLang's and llama.cpp's (field_table.cc says whose). Each is another spelling of a field
// of rows, or changes nothing, or is ignored with a note, or is refused unless it asks for what
// happens anyway.
//
// A field that would change the tokens of an answer, or asks for something that is the purpose of
// its row, is refused. One that asks for more beside the answer is ignored with a note.
#include <cstdint>
#include <span>
#include <string_view>

#include "batch/row_fields.h"
#include "batch/row_grammar.h"

namespace minisgl::batch {
namespace {

using enum FieldType;
using enum FieldUse;
using Take = bool (*)(Json& value, RowDraft* draft);

bool AcceptAny(Json&, RowDraft*) { return true; }
bool Refuse(Json&, RowDraft*) { return false; }

// Values that switch something off, or name nothing.
bool IsOff(const Json& value) {
  if (value.is_string()) return value.as_string().empty();
  if (value.is_array()) return value.as_array().empty();
  if (value.is_object()) return value.as_object().empty();
  return value == Json(false) || (value.is_number() && value.as_double() == 0);
}
bool AcceptOff(Json& value, RowDraft*) { return IsOff(value); }
bool AcceptTrue(Json& value, RowDraft*) { return value == Json(true); }
bool AcceptOne(Json& value, RowDraft*) { return value.is_number() && value.as_double() == 1; }
bool AcceptMinusOne(Json& value, RowDraft*) { return value == Json(-1); }
bool AcceptBelowZero(Json& value, RowDraft*) { return value.is_number() && value.as_double() < 0; }
bool AcceptUpToZero(Json& value, RowDraft*) { return value.is_number() && value.as_double() <= 0; }

// llama.cpp's default, of which the samplers that are not built are switched off by their fields.
bool AcceptDefaultSamplers(Json& value, RowDraft* draft) {
  static const Json kDefault(Json::Array{"penalties", "dry", "top_n_sigma", "top_k", "typ_p",
                                         "top_p", "min_p", "xtc", "temperature"});
  return value == kDefault || AcceptOff(value, draft);
}

bool AcceptUncalled(Json& value, RowDraft*) {
  return value == Json("none") || value == Json("auto");
}

bool AcceptTextModality(Json& value, RowDraft*) { return value == Json(Json::Array{Json("text")}); }

bool AcceptReasoningFormat(Json& value, RowDraft*) {
  return value == Json("auto") || value == Json("deepseek");
}

bool TakeBestOf(Json& value, RowDraft* draft) {
  draft->best_of = static_cast<int32_t>(value.as_int());
  return true;
}

constexpr RowField NoEffect(const char* name, const char* why, uint8_t flags = kSampling,
                            FieldType type = kAny) {
  return {name, type, why, AcceptAny, kNoRange, flags, nullptr, kNoEffect};
}

// `accepts`: the values that ask for nothing.
constexpr RowField Noted(const char* name, const char* why, uint8_t flags = kAnywhere,
                         Take accepts = AcceptOff) {
  return {name, kAny, why, accepts, kNoRange, flags, nullptr, kNoted};
}

constexpr RowField Refused(const char* name, const char* expects, uint8_t flags = kAnywhere,
                           Take accepts = AcceptOff, FieldType type = kAny) {
  return {name,    type,    expects, accepts, kNoRange, static_cast<uint8_t>(flags | kUnsupported),
          nullptr, kRefused};
}

// Takes what the field `kOf` of a row takes.
template <const char* const& kOf>
bool TakeAs(Json& value, RowDraft* draft) {
  const RowField* const field = FindRowField(kOf, kAtTop);
  return InRange(*field, value) && field->take(value, draft);
}

// clang-format off
constexpr const char* kMaxTokens = "max_tokens";
constexpr const char* kRepetition = "repetition_penalty";
constexpr const char* kAnswersOfRow = "n";
constexpr const char* kLogprobs = "logprobs";
constexpr const char* kTopLogprobs = "top_logprobs";
constexpr const char* kIncludeStop = "include_stop_str_in_output";
constexpr const char* kReturnIds = "return_token_ids";
constexpr const char* kPromptIds = "prompt_token_ids";
// clang-format on

// 0, llama.cpp's default, asks for none.
bool TakeNumProbs(Json& value, RowDraft* draft) {
  return value == Json(0) || TakeAs<kLogprobs>(value, draft);
}

// An empty text, llama.cpp's default, is no grammar.
bool TakeGrammar(Json& value, RowDraft* draft) {
  return value.as_string().empty() || TakeGuidedGrammar(value, draft);
}

constexpr const char* kOfCluster = "it places a request among servers";
constexpr const char* kOfDrafts = "drafts change no answer";
constexpr const char* kOfCache = "what is cached changes no answer";
constexpr const char* kOfNames = "it names or labels a request";
constexpr const char* kOfOff = "it tunes what only another field switches on";
constexpr const char* kOfPictures = "left out, because options say how pictures are read";
constexpr const char* kNoAudio = "left out, because answers are text";
constexpr const char* kNoBeams = "left out, because there is no beam search";
constexpr const char* kNoCode = "left out, because the program runs no code of a request";
constexpr const char* kNoLora = "left out, because the model is that of the run";
constexpr const char* kNoExperts = "left out, because the routing of experts is not written";
constexpr const char* kNoHidden = "left out, because hidden states are not written";
constexpr const char* kNoInfill = "left out, because nothing is filled in between two texts";
constexpr const char* kWholeRows = "rows are answered whole (--stream writes parts of answers)";

// clang-format off
constexpr RowField kForeign[] = {
    // Other spellings.
    {"n_predict", kInteger, "an integer from 1 to 2147483647, or -1 for no limit",
     TakeAs<kMaxTokens>, kNoRange, kAnywhere, "max_tokens"},
    {"repeat_penalty", kNumber, "a number above 0 and at most 100", TakeAs<kRepetition>, kNoRange,
     kAnywhere, "repetition_penalty"},
    {"n_cmpl", kInteger, "an integer from 1 to 128", TakeAs<kAnswersOfRow>, kNoRange, kAnywhere,
     "n"},
    {"n_probs", kInteger, "an integer from 0 to 20", TakeNumProbs, kNoRange, kCompletion,
     "logprobs"},
    {"return_logprob", kBool, "true or false", TakeAs<kLogprobs>, kNoRange, kAtTop, "logprobs"},
    {"top_logprobs_num", kInteger, "an integer from 0 to 20", TakeAs<kTopLogprobs>, kNoRange,
     kAtTop, "top_logprobs"},
    {"no_stop_trim", kBool, "true or false", TakeAs<kIncludeStop>, kNoRange, kSampling,
     "include_stop_str_in_output"},
    {"return_tokens", kBool, "true or false", TakeAs<kReturnIds>, kNoRange, kAnywhere,
     "return_token_ids"},
    {"json_schema", kAny, "a JSON schema", TakeGuidedJson, kNoRange, kSampling, "guided_json"},
    {"regex", kString, "a string", TakeGuidedRegex, kNoRange, kSampling, "guided_regex"},
    {"grammar", kString, "a string", TakeGrammar, kNoRange, kAnywhere, "guided_grammar"},
    {"ebnf", kString, "a string", TakeGuidedGrammar, kNoRange, kSampling, "guided_grammar"},
    {"guided_decoding", kObject, "an object", TakeStructuredOutputs, kNoRange, kSampling,
     "structured_outputs"},

    // Who asks, where and what for.
    NoEffect("user", kOfNames, kAnywhere | kInEmbedded | kInRanked, kString),
    NoEffect("safety_identifier", kOfNames, kAnywhere, kString),
    NoEffect("store", "nothing is stored elsewhere", kAnywhere, kBool),
    NoEffect("service_tier", "there is one tier", kAnywhere, kString),
    NoEffect("prompt_cache_key", kOfCache, kAnywhere, kString),
    NoEffect("prompt_cache_retention", kOfCache, kAnywhere, kString),
    NoEffect("prompt_cache_options", kOfCache, kAnywhere, kObject),
    NoEffect("prediction", "it may save time and changes no answer", kAnywhere, kObject),
    NoEffect("spaces_between_special_tokens", "nothing is put between tokens", kSampling, kBool),
    NoEffect("request_id", kOfNames), NoEffect("rid", kOfNames),
    NoEffect("session_id", kOfNames), NoEffect("extra_key", kOfNames),
    NoEffect("custom_labels", kOfNames), NoEffect("log_metrics", kOfNames),
    NoEffect("cache_salt", kOfCache), NoEffect("cache_prompt", kOfCache),
    NoEffect("n_cache_reuse", kOfCache), NoEffect("skip_reading_prefix_cache", kOfCache),
    NoEffect("id_slot", kOfCluster), NoEffect("kv_transfer_params", kOfCluster),
    NoEffect("ec_transfer_params", kOfCluster), NoEffect("bootstrap_host", kOfCluster),
    NoEffect("bootstrap_port", kOfCluster), NoEffect("bootstrap_room", kOfCluster),
    NoEffect("routed_dp_rank", kOfCluster), NoEffect("disagg_prefill_dp_rank", kOfCluster),
    NoEffect("data_parallel_rank", kOfCluster),

    // How an answer is sampled.
    NoEffect("speculative.n_min", kOfDrafts), NoEffect("speculative.n_max", kOfDrafts),
    NoEffect("speculative.p_min", kOfDrafts), NoEffect("speculative.type", kOfDrafts),
    NoEffect("speculative.ngram_size_n", kOfDrafts),
    NoEffect("speculative.ngram_size_m", kOfDrafts),
    NoEffect("speculative.ngram_m_hits", kOfDrafts), NoEffect("ngram_corpus_id", kOfDrafts),
    NoEffect("backend_sampling", "sampling is the same on every device"),
    {"best_of", kInteger, "an integer from 1 to 128, equal to n", TakeBestOf, kAnswers,
     kCompletion | kInSamplingParams | kUnsupported, nullptr, kRefused},
    Refused("use_beam_search", kNoBeams, kSampling),
    NoEffect("length_penalty", "there is no beam search"),
    NoEffect("early_stopping", "there is no beam search"),
    Refused("typical_p", "1, because typical sampling is not built", kAnywhere, AcceptOne),
    Refused("top_n_sigma", "at most 0, because top-n-sigma sampling is not built", kAnywhere,
            AcceptUpToZero),
    Refused("xtc_probability", "0, because XTC sampling is not built"),
    NoEffect("xtc_threshold", kOfOff),
    Refused("dynatemp_range", "0, because dynamic temperature is not built"),
    NoEffect("dynatemp_exponent", kOfOff),
    Refused("mirostat", "0, because Mirostat is not built"),
    NoEffect("mirostat_tau", kOfOff), NoEffect("mirostat_eta", kOfOff),
    Refused("dry_multiplier", "0, because DRY penalties are not built"),
    NoEffect("dry_base", kOfOff), NoEffect("dry_allowed_length", kOfOff),
    NoEffect("dry_penalty_last_n", kOfOff), NoEffect("dry_sequence_breakers", kOfOff),
    Refused("adaptive_target", "below 0, because adaptive sampling is not built", kAnywhere,
            AcceptBelowZero),
    NoEffect("adaptive_decay", kOfOff),
    Refused("min_keep", "0, because samplers keep no least number of tokens"),
    Noted("repeat_last_n", "repetition_penalty counts the whole prompt and answer", kAnywhere,
          AcceptMinusOne),
    Noted("samplers", "the order of sampling is fixed: bias, penalties, temperature, top_k, top_p, "
          "min_p", kAnywhere, AcceptDefaultSamplers),
    Refused("repetition_detection", "left out, because repetition is not detected", kSampling),
    Refused("watermarking", "false, because answers have no watermark", kSampling),
    Refused("logits_processors", kNoCode, kSampling),
    Refused("custom_logit_processor", kNoCode, kSampling),
    Refused("custom_params", kNoCode, kSampling), Refused("vllm_xargs", kNoCode, kSampling),
    Refused("extra_args", kNoCode, kSampling),
    Refused("trace_decode_token_ids", "left out, because tokens of answers are sampled", kSampling),
    Refused("stop_regex", "left out, because stops are strings and token ids", kSampling),
    Refused("structural_tag", "left out, because structural tags are not built", kSampling),
    NoEffect("guided_decoding_backend", "there is one way to follow a grammar"),
    Refused("guided_whitespace_pattern", "left out, because a schema decides about white space",
            kSampling),
    Refused("grammar_lazy", "false, because a grammar describes the whole answer"),
    Refused("grammar_triggers", "empty, because a grammar describes the whole answer"),
    NoEffect("n_keep", "a context that is full ends the answer"),
    NoEffect("n_discard", "a context that is full ends the answer"),
    Refused("n_indent", kNoInfill),
    Refused("t_max_predict_ms", "at most 0, because timeout_s limits the time of a row", kAnywhere,
            AcceptUpToZero),
    NoEffect("reasoning_budget_start_tag", kOfOff), NoEffect("reasoning_budget_end_tag", kOfOff),
    NoEffect("reasoning_budget_arm_immediately", kOfOff),

    // What the prompt is.
    Refused("echo", "false, because a conversation is not repeated", kInChat, AcceptOff, kBool),
    Refused("add_special_tokens", "false, because the chat template writes them", kInChat,
            AcceptOff, kBool),
    Refused("suffix", "empty, because nothing is filled in between two texts", kCompletion,
            AcceptOff, kString),
    Refused("input_prefix", kNoInfill), Refused("input_suffix", kNoInfill),
    Refused("input_extra", kNoInfill),
    Refused("truncate_prompt_tokens", "left out, because --on-overflow truncate-left cuts prompts",
            kSampling, AcceptMinusOne),
    NoEffect("truncation_side", kOfOff),
    Refused("chat_template", "left out, because --chat-template gives the template of a run",
            kChat),
    Refused("input_ids", "left out, because messages are the prompt", kInChat),
    Refused("prompt_embeds", "left out, because prompts are text or token ids"),
    Refused("input_embeds", "left out, because prompts are text or token ids"),
    Refused("image_data", "left out, because pictures are parts of messages"),
    Refused("video_data", "left out, because videos are not read"),
    Refused("audio_data", "left out, because audio is not read"),
    Refused("images_config", kOfPictures, kSampling),
    Refused("max_dynamic_patch", kOfPictures, kSampling),
    Refused("min_dynamic_patch", kOfPictures, kSampling),
    Refused("media_io_kwargs", kOfPictures, kSampling),
    Refused("mm_processor_kwargs", kOfPictures, kSampling),
    NoEffect("use_audio_in_video", "videos are not read"),
    Refused("lora", kNoLora), Refused("lora_path", kNoLora),
    Refused("session_params", "left out, because session names the session of a row"),
    Refused("task", "left out, because the template has no instructions of that kind", kChat),
    Refused("functions", "left out; tools is its successor", kChat, Refuse),
    Refused("function_call", "none or auto; tool_choice is its successor", kChat,
            AcceptUncalled),
    Refused("web_search_options", "left out, because the program has no web access", kChat, Refuse),

    // What is written.
    Noted("stream", kWholeRows), Noted("stream_options", kWholeRows),
    NoEffect("stream_interval", "rows are answered whole"),
    NoEffect("stream_reasoning", "rows are answered whole"),
    Refused("modalities", "[\"text\"], because answers are text", kChat, AcceptTextModality,
            kArray),
    Refused("audio", kNoAudio, kChat, Refuse),
    Refused("moderation", "left out, because answers are not moderated", kAnywhere, Refuse),
    Refused("separate_reasoning", "true, because reasoning is written apart", kChat, AcceptTrue),
    Refused("reasoning_format", "auto or deepseek, because reasoning is written apart", kAnywhere,
            AcceptReasoningFormat),
    Refused("reasoning_in_content", "false, because reasoning is written apart"),
    Refused("thinking_forced_open", "false, because the template opens reasoning"),
    NoEffect("chat_format", "the template of the model is used"),
    NoEffect("chat_parser", "the template of the model is used"),
    Noted("preserved_tokens", "skip_special_tokens false keeps all special tokens"),
    NoEffect("detokenize", "answers have their text"),
    NoEffect("output_kind", "rows are answered whole"),
    NoEffect("skip_clone", "it is internal"), NoEffect("flat_logprobs", "it is internal"),
    Refused("logprob_token_ids", "left out, because log-probabilities are of the likeliest tokens",
            kSampling),
    Refused("token_ids_logprob", "left out, because log-probabilities are of the likeliest tokens"),
    Refused("prompt_logprob_token_ids",
            "left out, because log-probabilities are of the likeliest tokens", kSampling),
    Refused("prompt_logprob_start", "0, because prompt_logprobs are of the whole prompt",
            kSampling),
    Refused("logprob_start_len", "-1, because prompt_logprobs are of the whole prompt", kAnywhere,
            AcceptMinusOne),
    Refused("post_sampling_probs", "false, because log-probabilities are the model's"),
    NoEffect("return_text_in_logprobs", "log-probabilities have the text of their tokens"),
    Noted("return_tokens_as_token_ids", "return_token_ids writes the ids of an answer"),
    Noted("return_prompt_text", "minisgl tokenize shows it"),
    Noted("return_prompt_token_ids", "minisgl tokenize shows them"),
    Noted("return_token_offsets", "minisgl tokenize shows tokens"),
    Noted("return_mm_kwargs", "what the model reads of pictures is not written", kSampling),
    Noted("return_meta_info", "--row-metrics writes the times of answers"),
    Noted("return_cached_tokens_details", "usage has the number of cached tokens"),
    Noted("return_progress", "--progress shows it"),
    Noted("timings_per_token", "--row-metrics writes the times of answers"),
    Noted("response_fields", "answers have all their fields"),
    Refused("return_hidden_states", kNoHidden), Refused("return_routed_experts", kNoExperts),
    NoEffect("routed_experts_start_len", kOfOff), NoEffect("routed_experts_prompt_start", kOfOff),
};
// clang-format on

}  // namespace

std::span<const RowField> ForeignFields() { return kForeign; }

}  // namespace minisgl::batch
