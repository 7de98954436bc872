// Rows of clients that write every field of their request at its default: OpenAI's, vLLM's,
// SGLang's and llama.cpp's. Such fields ask for nothing, and nothing is said of them.
#include <gtest/gtest.h>

#include <string>

#include "batch/row.h"

namespace minisgl::batch {
namespace {

constexpr const char* kDefaultsMessages = R"("messages": [{"role": "user", "content": "a"}], )";

void ExpectSilence(const std::string& row) {
  const ParsedRow parsed = ParseRow(row, 0, 1);
  EXPECT_FALSE(parsed.error) << parsed.error->message << "\n" << row;
  EXPECT_TRUE(parsed.row.warnings.empty()) << parsed.row.warnings[0] << "\n" << row;
  EXPECT_TRUE(parsed.row.notes.empty()) << parsed.row.notes[0].text << "\n" << row;
}

Row ReadDefaults(const std::string& row) {
  ParsedRow parsed = ParseRow(row, 0, 1);
  EXPECT_FALSE(parsed.error) << parsed.error->message << "\n" << row;
  return std::move(parsed.row);
}

std::string RequestTo(const char* url, const std::string& body) {
  return std::string(R"({"custom_id": "c", "method": "POST", "url": ")") + url + R"(", "body": {)" +
         body + "}}";
}

std::string ChatRequest(const std::string& fields) {
  return RequestTo("/v1/chat/completions", kDefaultsMessages + fields);
}

TEST(DefaultFieldsTest, OpenAi) {
  ExpectSilence(ChatRequest(
      R"("audio": null, "frequency_penalty": 0, "function_call": "none", "functions": null,)"
      R"("logit_bias": {}, "logprobs": false, "max_completion_tokens": null,)"
      R"("max_tokens": null, "metadata": {}, "modalities": ["text"], "n": 1,)"
      R"("parallel_tool_calls": true, "prediction": null, "presence_penalty": 0,)"
      R"("prompt_cache_key": null, "response_format": {"type": "text"}, "seed": null,)"
      R"("service_tier": "auto", "stop": null, "store": false, "stream": false,)"
      R"("stream_options": null, "temperature": 1, "tool_choice": "none", "tools": null,)"
      R"("top_logprobs": 0, "top_p": 1, "user": null, "web_search_options": null)"));
  ExpectSilence(
      ChatRequest(R"("function_call": "auto", "tool_choice": "auto", "logit_bias": null)"));
  ExpectSilence(RequestTo("/v1/completions",
                          R"("prompt": "a", "best_of": 1, "echo": false, "frequency_penalty": 0,)"
                          R"("logit_bias": null, "logprobs": null, "max_tokens": 16, "n": 1,)"
                          R"("seed": null, "stop": null, "stream": false, "suffix": null)"));
}

TEST(DefaultFieldsTest, Vllm) {
  const std::string sampling =
      R"("n": 1, "best_of": null, "presence_penalty": 0.0, "frequency_penalty": 0.0,)"
      R"("repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0,)"
      R"("seed": null, "stop": [], "stop_token_ids": [], "ignore_eos": false, "min_tokens": 0,)"
      R"("logprobs": null, "prompt_logprobs": null, "skip_special_tokens": true,)"
      R"("spaces_between_special_tokens": true, "include_stop_str_in_output": false,)"
      R"("structured_outputs": null, "logit_bias": null, "allowed_token_ids": null,)"
      R"("bad_words": [], "truncate_prompt_tokens": null, "use_beam_search": false,)"
      R"("length_penalty": 1.0, "guided_json": null, "guided_regex": null, "guided_choice": null,)"
      R"("guided_grammar": null, "structural_tag": null, "guided_decoding_backend": null,)"
      R"("guided_whitespace_pattern": null, "vllm_xargs": null, "logits_processors": null)";
  ExpectSilence(ChatRequest(
      sampling +
      R"(, "echo": false, "add_generation_prompt": true, "continue_final_message": false,)"
      R"("add_special_tokens": false, "documents": null, "chat_template": null,)"
      R"("chat_template_kwargs": null, "media_io_kwargs": null, "mm_processor_kwargs": null,)"
      R"("priority": 0, "request_id": null, "return_tokens_as_token_ids": null,)"
      R"("return_token_ids": null, "cache_salt": null, "kv_transfer_params": null,)"
      R"("include_reasoning": true, "parallel_tool_calls": true, "top_logprobs": 0,)"
      R"("thinking_token_budget": null, "repetition_detection": null, "tool_choice": "none")"));
  ExpectSilence(RequestTo("/v1/completions", R"("prompt": [1, 2], )" + sampling +
                                                 R"(, "add_special_tokens": true, "echo": false,)"
                                                 R"("prompt_embeds": null, "suffix": null)"));
  ExpectSilence(R"({"prompt": "a", "sampling_params": {)" + sampling +
                R"(, "max_tokens": 16, "detokenize": true, "output_kind": 0, "skip_clone": false,)"
                R"("flat_logprobs": false, "extra_args": null, "guided_decoding": null,)"
                R"("early_stopping": false, "skip_reading_prefix_cache": null}})");
}

TEST(DefaultFieldsTest, Sglang) {
  ExpectSilence(ChatRequest(
      R"("separate_reasoning": true, "stream_reasoning": true, "top_k": -1, "min_p": 0.0,)"
      R"("min_tokens": 0, "regex": null, "ebnf": null, "repetition_penalty": 1.0,)"
      R"("stop_token_ids": null, "stop_regex": null, "no_stop_trim": false, "ignore_eos": false,)"
      R"("continue_final_message": false, "skip_special_tokens": true, "lora_path": null,)"
      R"("session_params": null, "return_hidden_states": false, "chat_template_kwargs": null,)"
      R"("rid": null, "extra_key": null, "cache_salt": null, "priority": null,)"
      R"("custom_logit_processor": null, "custom_params": null, "return_routed_experts": false,)"
      R"("routed_experts_start_len": 0, "return_cached_tokens_details": false,)"
      R"("return_prompt_token_ids": false, "return_meta_info": false, "input_ids": null,)"
      R"("use_audio_in_video": false, "images_config": null, "bootstrap_host": null)"));
  ExpectSilence(
      R"({"text": "a", "input_embeds": null, "image_data": null, "rid": null,)"
      R"( "return_logprob": false, "logprob_start_len": -1, "top_logprobs_num": 0,)"
      R"( "token_ids_logprob": null, "return_text_in_logprobs": false, "stream": false,)"
      R"( "log_metrics": true, "return_hidden_states": false, "modalities": null,)"
      R"( "lora_path": null, "session_params": null, "sampling_params": {"max_new_tokens": 128,)"
      R"( "stop": null, "stop_regex": null, "top_k": 1073741824, "min_new_tokens": 0, "n": 1,)"
      R"( "json_schema": null, "regex": null, "ebnf": null, "structural_tag": null,)"
      R"( "ignore_eos": false, "no_stop_trim": false, "custom_params": null,)"
      R"( "stream_interval": null, "logit_bias": null, "sampling_seed": null}})");
}

TEST(DefaultFieldsTest, LlamaCpp) {
  ExpectSilence(
      R"({"prompt": "a", "temperature": 0.8, "dynatemp_range": 0.0, "dynatemp_exponent": 1.0,)"
      R"( "top_k": 40, "top_p": 0.95, "min_p": 0.05, "top_n_sigma": -1.0, "xtc_probability": 0.0,)"
      R"( "xtc_threshold": 0.1, "typical_p": 1.0, "repeat_last_n": -1, "repeat_penalty": 1.0,)"
      R"( "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0,)"
      R"( "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1,)"
      R"( "dry_sequence_breakers": ["\n", ":"], "mirostat": 0, "mirostat_tau": 5.0,)"
      R"( "mirostat_eta": 0.1, "grammar": "", "grammar_lazy": false, "grammar_triggers": [],)"
      R"( "preserved_tokens": [], "json_schema": null, "seed": -1, "ignore_eos": false,)"
      R"( "logit_bias": [], "n_probs": 0, "min_keep": 0, "t_max_predict_ms": 0,)"
      R"( "n_predict": -1, "n_indent": 0, "n_keep": 0, "n_discard": 0, "n_cache_reuse": 0,)"
      R"( "stream": false, "stop": [], "id_slot": -1, "cache_prompt": true,)"
      R"( "return_tokens": false, "return_progress": false, "timings_per_token": false,)"
      R"( "post_sampling_probs": false, "response_fields": [], "lora": [],)"
      R"( "reasoning_in_content": false, "thinking_forced_open": false, "input_prefix": "",)"
      R"( "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p",)"
      R"( "xtc", "temperature"]})");
}

TEST(RowIdTest, IdsKeepEveryDigit) {
  for (const char* id : {"10881715073803520453", "18446744073709551616", "-9223372036854775809",
                         "123456789012345678901234567890", "7", "1.5"}) {
    EXPECT_EQ(ReadDefaults(R"({"prompt": "a", "id": )" + std::string(id) + "}").id.Dump(), id);
    EXPECT_EQ(ReadDefaults(R"({"prompt": "a", "custom_id": )" + std::string(id) + "}").id.Dump(),
              id);
  }
}

// Null is not given, and a list without calls is none.
TEST(DefaultFieldsTest, MembersOfMessagesThatAreEmptyAreLeftOut) {
  const Row row = ReadDefaults(
      R"({"messages": [{"role": "user", "content": "a", "prefix": null}, {"role": "assistant",)"
      R"( "content": null, "tool_calls": []}, {"role": "user", "content": "d"}]})");
  EXPECT_EQ(row.messages.as_array()[1].Find("tool_calls"), nullptr);
  EXPECT_TRUE(row.messages.as_array()[1].Find("content")->is_null());
  EXPECT_EQ(row.messages.as_array()[0].Find("prefix"), nullptr);
}

}  // namespace
}  // namespace minisgl::batch
