// See peer_names.h.
#include "load/peer_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

namespace minisgl::load {
namespace {

// What a name means here: an option ("--seed"), several words that begin with one ("--seed N"), or
// a sentence.
struct PeerName {
  std::string_view name, meaning;
};

constexpr std::string_view kNoServer =
    "this program is no server: run answers files and pipes, chat talks at the terminal";
constexpr std::string_view kModelOption = "-m OWNER/NAME";
constexpr std::string_view kOneDevice = "all layers are on one device: --device cpu, or cuda";
constexpr std::string_view kInRows = "it is a field of rows in a file";
constexpr std::string_view kNotNeeded = "it is not needed here";

constexpr PeerName kOptions[] = {
    {"-V", "--version"},
    {"-b", "--max-prefill-length"},
    {"-c", "the context is --max-seq-len N; the last conversation goes on by chat --continue"},
    {"-cnv", "minisgl chat is a conversation, and minisgl run -p TEXT one answer"},
    {"-ctk", "--kv-dtype"},
    {"-ctv", "--kv-dtype"},
    {"-dev", "--device"},
    {"-e", "a shell makes the escapes: $'one\\ntwo'"},
    {"-fa", kNotNeeded},
    {"-hf", kModelOption},
    {"-hff", kModelOption},
    {"-hfr", kModelOption},
    {"-i", "--file"},
    {"-j", "--json-schema"},
    {"-mg", "--device"},
    {"-mu", kModelOption},
    {"-ncmoe", "--cpu-experts"},
    {"-ngl", kOneDevice},
    {"-no-cnv", "minisgl run -p TEXT --raw continues a text without the chat template"},
    {"-np", "--max-running-requests"},
    {"-nkvo", kOneDevice},
    {"-pp", "--tensor-parallel"},
    {"-pps", "--max-running-requests"},
    {"-r", "--stop"},
    {"-s", "--seed"},
    {"-st", "minisgl run -p TEXT gives one answer"},
    {"-sys", "--system"},
    {"-tb", "--threads"},
    {"-tp", "--tensor-parallel"},
    {"-ub", "--max-prefill-length"},
    {"--api-key", kNoServer},
    {"--batch-size", "--max-prefill-length"},
    {"--block-size", "--page-size"},
    {"--cache-type-k", "--kv-dtype"},
    {"--cache-type-v", "--kv-dtype"},
    {"--conversation", "minisgl chat is a conversation, and minisgl run -p TEXT one answer"},
    {"--context-length", "--max-seq-len"},
    {"--cpu-moe", "--cpu-experts all"},
    {"--cpu-offload-gb", "--host-cache"},
    {"--ctx-size", "--max-seq-len"},
    {"--device-map", "--device"},
    {"--do-sample", "--temperature"},
    {"--enable-prefix-caching", "prefixes are always cached; --cache naive turns that off"},
    {"--enforce-eager", "--cuda-graph-max-bs 0"},
    {"--file-prompt", "-p @FILE"},
    {"--flash-attn", kNotNeeded},
    {"--format", "--json-schema"},
    {"--gpu-layers", kOneDevice},
    {"--gpu-memory-utilization", "--memory-ratio"},
    {"--grammar-file", "--grammar"},
    {"--guided-choice", "--choice"},
    {"--guided-grammar", "--grammar"},
    {"--guided-json", "--json-schema"},
    {"--guided-regex", "--regex"},
    {"--hf-file", kModelOption},
    {"--hf-repo", kModelOption},
    {"--hidethinking", "--hide-thinking"},
    {"--host", kNoServer},
    {"--input-file", "--file"},
    {"--json-schema-file", "--json-schema"},
    {"--keepalive", kNoServer},
    {"--kv-cache-dtype", "--kv-dtype"},
    {"--load-in-4bit", "--quantize int4"},
    {"--load-in-8bit", "--quantize int8"},
    {"--log-disable", "--quiet"},
    {"--logit-bias", kInRows},
    {"--max-length", "--max-seq-len"},
    {"--max-model-len", "--max-seq-len"},
    {"--max-new-tokens", "--max-tokens"},
    {"--max-num-batched-tokens", "--max-step-tokens"},
    {"--max-num-seqs", "--max-running-requests"},
    {"--mem-fraction-static", "--memory-ratio"},
    {"--mlock", kNotNeeded},
    {"--model-id", "--model"},
    {"--model-name", "--model"},
    {"--model-path", "--model"},
    {"--model-url", kModelOption},
    {"--n", kInRows},
    {"--n-cpu-moe", "--cpu-experts"},
    {"--n-gpu-layers", kOneDevice},
    {"--n-predict", "--max-tokens"},
    {"--n-probs", "--logprobs"},
    {"--no-cnv", "minisgl run -p TEXT --raw continues a text without the chat template"},
    {"--no-conversation", "minisgl run -p TEXT --raw continues a text without the chat template"},
    {"--no-mmap", kNotNeeded},
    {"--nowordwrap", "--plain"},
    {"--num-ctx", "--max-seq-len"},
    {"--num-predict", "--max-tokens"},
    {"--num-return-sequences", "n is a field of rows in a file"},
    {"--output-file", "--output"},
    {"--parallel", "--max-running-requests"},
    {"--pipeline-parallel-size", "--tensor-parallel"},
    {"--port", kNoServer},
    {"--predict", "--max-tokens"},
    {"--prompt-file", "-p @FILE"},
    {"--quantization", "--quantize"},
    {"--repeat-penalty", "--repetition-penalty"},
    {"--reverse-prompt", "--stop"},
    {"--served-model-name", kNoServer},
    {"--simple-io", "--plain"},
    {"--single-turn", "minisgl run -p TEXT gives one answer"},
    {"--speculative-config", "--speculate"},
    {"--speculative-model", "--speculate"},
    {"--split-mode", "--device"},
    {"--swap-space", "--host-cache"},
    {"--system-prompt", "--system"},
    {"--system-prompt-file", "--system @FILE"},
    {"--temp", "--temperature"},
    {"--tensor-parallel-size", "--tensor-parallel"},
    {"--threads-batch", "--threads"},
    {"--tokenizer", "the tokenizer is read from the folder of the model"},
    {"--torch-dtype", "--dtype"},
    {"--tp-size", "--tensor-parallel"},
    {"--trust-remote-code", "code of a repository never runs here"},
    {"--ubatch-size", "--max-prefill-length"},
};

constexpr PeerName kCommands[] = {
    {"complete", "run"},     {"convert", "GGUF files and safetensors run as they are"},
    {"download", "pull"},    {"generate", "run"},
    {"list", "models"},      {"ls", "models"},
    {"ps", kNoServer},       {"rm", "minisgl models --json names the folder of a model to delete"},
    {"run-batch", "run -f"}, {"serve", kNoServer},
    {"server", kNoServer},   {"show", "info"},
    {"stop", kNoServer},     {"version", "--version"},
};

constexpr PeerName kValues[] = {
    {"bfloat16", "bf16"}, {"float", "f32"}, {"float16", "f16"}, {"float32", "f32"}, {"fp16", "f16"},
    {"fp32", "f32"},      {"half", "f16"},  {"false", "off"},   {"true", "on"},     {"gpu", "cuda"},
    {"8bit", "int8"},     {"4bit", "int4"}, {"q8_0", "int8"},   {"q4_0", "int4"},   {"fp8", "int8"},
};

template <size_t kCount>
std::string_view MeaningOf(const PeerName (&names)[kCount], std::string_view name) {
  const auto* found = std::find_if(std::begin(names), std::end(names),
                                   [name](const PeerName& peer) { return peer.name == name; });
  return found == std::end(names) ? "" : found->meaning;
}

}  // namespace

std::string AdviceOnOption(const CommandSpec& spec, std::string_view option) {
  std::string name(option.substr(0, option.find('=')));
  const size_t dashes = std::min(name.find_first_not_of('-'), name.size());
  std::replace(name.begin() + static_cast<std::ptrdiff_t>(dashes), name.end(), '_', '-');
  const std::string_view meaning = MeaningOf(kOptions, name);
  if (meaning.empty() || !meaning.starts_with('-')) return std::string(meaning);
  const bool is_there = spec.FindOption(meaning.substr(0, meaning.find(' '))) != nullptr;
  return is_there ? fmt::format("did you mean {}?", meaning) : "";
}

std::string AdviceOnCommand(const CommandSpec& spec, std::string_view command) {
  const std::string_view meaning = MeaningOf(kCommands, command);
  const bool is_name =
      meaning.starts_with('-') || spec.FindCommand(meaning.substr(0, meaning.find(' ')));
  if (is_name) return fmt::format("did you mean {}?", meaning);
  // The name of a command of the program is no advice on an argument of another command.
  return meaning.find(' ') == std::string_view::npos ? "" : std::string(meaning);
}

bool IsPeerOption(std::string_view option) { return !MeaningOf(kOptions, option).empty(); }

std::string_view NameOfValue(std::string_view value) { return MeaningOf(kValues, value); }

}  // namespace minisgl::load
