#include "batch/field_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace minisgl::batch {
namespace {

// What clients of these programs may send, from their definitions of requests.
constexpr RequestFields kRequests[] = {
    {"OpenAI chat completions", 'O', kChat,
     "messages model audio frequency_penalty function_call functions logit_bias logprobs "
     "max_completion_tokens max_tokens metadata modalities moderation n parallel_tool_calls "
     "prediction presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention "
     "reasoning_effort response_format safety_identifier seed service_tier stop store stream "
     "stream_options temperature tool_choice tools top_logprobs top_p user verbosity "
     "web_search_options"},
    {"OpenAI completions", 'O', kCompletion,
     "model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n "
     "presence_penalty seed stop stream stream_options suffix temperature top_p user"},
    {"vLLM chat completions", 'V', kChat,
     "messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens "
     "max_completion_tokens n presence_penalty response_format seed stop stream stream_options "
     "temperature top_p tools tool_choice reasoning_effort thinking_token_budget "
     "include_reasoning parallel_tool_calls user use_beam_search top_k min_p repetition_penalty "
     "watermarking length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens "
     "skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side "
     "prompt_logprobs logprob_token_ids allowed_token_ids bad_words add_generation_prompt "
     "continue_final_message documents chat_template chat_template_kwargs media_io_kwargs "
     "mm_processor_kwargs structured_outputs guided_json guided_regex guided_choice "
     "guided_grammar guided_decoding_backend guided_whitespace_pattern structural_tag "
     "priority request_id session_id return_tokens_as_token_ids return_token_ids "
     "routed_experts_prompt_start return_token_offsets return_prompt_text return_mm_kwargs "
     "cache_salt kv_transfer_params ec_transfer_params vllm_xargs repetition_detection "
     "stream_interval logits_processors"},
    // These stand beside a body of a prompt, too, where they mean more.
    {"vLLM chat completions", 'V', kInChat, "echo add_special_tokens"},
    {"SGLang chat completions", 'S', kInChat, "input_ids"},
    {"vLLM completions", 'V', kCompletion,
     "model prompt echo frequency_penalty logit_bias logprobs max_tokens n best_of "
     "presence_penalty seed stop stream stream_options suffix temperature top_p user "
     "use_beam_search top_k min_p repetition_penalty watermarking length_penalty stop_token_ids "
     "include_stop_str_in_output ignore_eos min_tokens skip_special_tokens "
     "spaces_between_special_tokens truncate_prompt_tokens truncation_side allowed_token_ids "
     "prompt_logprobs logprob_token_ids bad_words prompt_embeds add_special_tokens "
     "response_format structured_outputs priority request_id session_id "
     "return_tokens_as_token_ids return_token_ids routed_experts_prompt_start "
     "return_token_offsets return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params "
     "vllm_xargs repetition_detection thinking_token_budget stream_interval logits_processors"},
    {"vLLM SamplingParams", 'V', kInSamplingParams,
     "n best_of presence_penalty frequency_penalty repetition_penalty temperature top_p top_k "
     "min_p seed stop stop_token_ids ignore_eos max_tokens min_tokens logprobs prompt_logprobs "
     "prompt_logprob_token_ids prompt_logprob_start logprob_token_ids flat_logprobs detokenize "
     "skip_special_tokens spaces_between_special_tokens include_stop_str_in_output output_kind "
     "stream_interval skip_clone structured_outputs guided_decoding logit_bias allowed_token_ids "
     "extra_args bad_words skip_reading_prefix_cache thinking_token_budget repetition_detection "
     "routed_experts_prompt_start trace_decode_token_ids logits_processors "
     "truncate_prompt_tokens use_beam_search length_penalty early_stopping watermarking"},
    {"SGLang chat completions", 'S', kChat,
     "messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens "
     "max_completion_tokens n presence_penalty response_format seed stop stream stream_options "
     "temperature top_p user tools tool_choice parallel_tool_calls return_hidden_states "
     "return_routed_experts routed_experts_start_len return_cached_tokens_details "
     "return_prompt_token_ids return_token_ids return_meta_info reasoning_effort reasoning task "
     "top_k min_p min_tokens regex ebnf repetition_penalty stop_token_ids stop_regex no_stop_trim "
     "ignore_eos continue_final_message skip_special_tokens lora_path session_id session_params "
     "separate_reasoning stream_reasoning chat_template_kwargs max_dynamic_patch "
     "min_dynamic_patch use_audio_in_video images_config custom_logit_processor custom_params rid "
     "extra_key cache_salt ngram_corpus_id priority bootstrap_host bootstrap_port bootstrap_room "
     "routed_dp_rank disagg_prefill_dp_rank data_parallel_rank"},
    {"SGLang completions", 'S', kCompletion,
     "model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n "
     "presence_penalty seed stop stream stream_options suffix temperature top_p user "
     "return_hidden_states return_routed_experts routed_experts_start_len "
     "return_cached_tokens_details return_token_ids top_k min_p min_tokens json_schema regex ebnf "
     "repetition_penalty stop_token_ids stop_regex no_stop_trim ignore_eos skip_special_tokens "
     "lora_path session_id session_params response_format custom_params custom_logit_processor "
     "images_config bootstrap_host bootstrap_port bootstrap_room routed_dp_rank "
     "disagg_prefill_dp_rank data_parallel_rank rid extra_key cache_salt ngram_corpus_id priority "
     "custom_labels"},
    {"SGLang generate", 'S', kAtTop,
     "text input_ids input_embeds image_data video_data audio_data rid return_logprob "
     "logprob_start_len top_logprobs_num token_ids_logprob return_text_in_logprobs stream "
     "log_metrics return_hidden_states modalities lora_path session_params "
     "custom_logit_processor return_routed_experts priority extra_key"},
    {"SGLang sampling_params", 'S', kInSamplingParams,
     "max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p "
     "frequency_penalty presence_penalty repetition_penalty min_new_tokens n json_schema regex "
     "ebnf structural_tag ignore_eos skip_special_tokens spaces_between_special_tokens "
     "no_stop_trim custom_params stream_interval logit_bias sampling_seed"},
    {"llama.cpp completion", 'L', kCompletion,
     "prompt temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma "
     "xtc_probability xtc_threshold typical_p repeat_last_n repeat_penalty presence_penalty "
     "frequency_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n "
     "dry_sequence_breakers mirostat mirostat_tau mirostat_eta adaptive_target adaptive_decay "
     "grammar grammar_lazy grammar_triggers preserved_tokens json_schema seed ignore_eos "
     "logit_bias n_probs min_keep backend_sampling t_max_predict_ms n_predict max_tokens n_indent "
     "n_keep n_discard n_cmpl n n_cache_reuse stream stream_options stop id_slot cache_prompt "
     "return_tokens return_progress samplers timings_per_token post_sampling_probs "
     "response_fields lora logprobs speculative.n_min speculative.n_max speculative.p_min "
     "speculative.type speculative.ngram_size_n speculative.ngram_size_m "
     "speculative.ngram_m_hits chat_format chat_parser reasoning_format reasoning_in_content "
     "thinking_forced_open parse_tool_calls reasoning_budget_tokens reasoning_budget_start_tag "
     "reasoning_budget_end_tag reasoning_budget_message reasoning_budget_arm_immediately "
     "input_prefix input_suffix input_extra image_data"},
    {"llama.cpp chat completions", 'L', kChat,
     "messages model max_tokens max_completion_tokens tools tool_choice parallel_tool_calls "
     "response_format json_schema grammar stop stream stream_options temperature top_k top_p "
     "min_p seed n logprobs top_logprobs chat_template_kwargs add_generation_prompt "
     "reasoning_format reasoning_effort thinking_budget_tokens"},
};

constexpr size_t kNameColumns = 32;
constexpr size_t kLetterColumns = 6;

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

std::string FateOf(const RowField& field) {
  switch (field.use) {
    case FieldUse::kTaken:
      return field.alias_of == nullptr ? "taken" : fmt::format("as {}", field.alias_of);
    case FieldUse::kNoEffect:
      return fmt::format("changes nothing: {}", field.expects);
    case FieldUse::kNoted:
      return fmt::format("ignored, with a note: {}", field.expects);
    case FieldUse::kRefused:
      return fmt::format("refused: must be {}", Expects(field));
  }
  return "";
}

// True if `field` does more than `other`, the same name in another place.
bool DoesMore(const RowField& field, const RowField& other) { return field.use < other.use; }

void AddWrapped(const std::string& text, size_t indent, size_t columns, std::string* out) {
  size_t at = indent;
  bool begins = true;
  for (const std::string_view word : Words(text)) {
    if (!begins && at + 1 + word.size() > columns) {
      *out += '\n' + std::string(indent, ' ');
      at = indent;
      begins = true;
    }
    if (!begins) *out += ' ';
    *out += word;
    at += word.size() + (begins ? 0 : 1);
    begins = false;
  }
  *out += '\n';
}

}  // namespace

std::span<const RequestFields> KnownRequests() { return kRequests; }

std::vector<FieldLine> FieldLines() {
  std::map<std::string_view, const RowField*> fields;
  for (const std::span<const RowField> part : {RowFields(), ForeignFields()}) {
    for (const RowField& field : part) {
      if ((field.flags & kSampling) == 0) continue;  // of rows that are not answered
      const auto [place, is_new] = fields.emplace(field.name, &field);
      if (!is_new && DoesMore(field, *place->second)) place->second = &field;
    }
  }
  std::map<std::string_view, std::string> letters;
  for (const RequestFields& request : kRequests) {
    for (const std::string_view name : Words(request.names)) {
      std::string& known = letters[name];
      if (known.find(request.letter) == std::string::npos) known += request.letter;
    }
  }
  std::vector<FieldLine> lines;
  for (const auto& [name, field] : fields) lines.push_back({name, letters[name], FateOf(*field)});
  return lines;
}

std::string FieldTable(size_t columns) {
  std::string text;
  AddWrapped("Fields of rows, and of requests to OpenAI (O), vLLM (V), SGLang (S), llama.cpp (L)",
             0, columns, &text);
  text += '\n';
  const auto add = [&](std::string_view name, std::string_view of, const std::string& outcome) {
    text += fmt::format("{:<{}} {:<{}} ", name, kNameColumns, of, kLetterColumns);
    AddWrapped(outcome, kNameColumns + kLetterColumns + 2, columns, &text);
  };
  add("FIELD", "OF", "WHAT BECOMES OF IT");
  for (const FieldLine& line : FieldLines()) {
    add(line.name, line.letters.empty() ? "-" : line.letters, line.outcome);
  }
  text += '\n';
  AddWrapped("Any other field is an error of its row, or with --lenient a warning.", 0, columns,
             &text);
  return text;
}

}  // namespace minisgl::batch
