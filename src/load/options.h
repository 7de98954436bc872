// The options that run, chat, info and tokenize share.
//
// Parsing checks each value, so after it the structs hold only values in range. Conflicts between
// options are checked where they are used. The functions that register options are the one list of
// their names and help lines; ranges of sampling parameters are in minisgl/sampling_fields.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "load/answer_settings.h"
#include "load/draft_choice.h"
#include "load/grammar_options.h"
#include "load/option_table.h"
#include "minisgl/base/number_range.h"
#include "minisgl/engine/kv_kind.h"
#include "minisgl/sampling_params.h"
#include "minisgl/sched/scheduler.h"
#include "minisgl/tensor/dtype.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/text/chat_template.h"
#include "minisgl/text/tool_calls.h"

namespace minisgl::load {

// Value of the chat template's reasoning switch; kAuto leaves it to the template.
enum class Thinking : uint8_t { kAuto, kOn, kOff };
inline constexpr Choice<Thinking> kThinkingChoices[] = {
    {"on", Thinking::kOn}, {"off", Thinking::kOff}, {"auto", Thinking::kAuto}};

// The form of contents for the chat template; auto: as its source reads them.
inline constexpr Choice<std::optional<ContentForm>> kTemplateContentChoices[] = {
    {"auto", std::nullopt}, {"parts", ContentForm::kParts}, {"string", ContentForm::kString}};

// Treatment of a prompt that leaves no room for an answer.
enum class PromptOverflow : uint8_t { kError, kTruncateLeft };
inline constexpr Choice<PromptOverflow> kPromptOverflowChoices[] = {
    {"error", PromptOverflow::kError}, {"truncate-left", PromptOverflow::kTruncateLeft}};

// Values of the engine's options.
inline constexpr Choice<std::optional<DType>> kDTypeChoices[] = {
    {"auto", std::nullopt}, {"bf16", DType::kBF16}, {"f16", DType::kF16}, {"f32", DType::kF32}};
inline constexpr Choice<Quantization> kQuantizationChoices[] = {
    {"none", Quantization::kNone}, {"int8", Quantization::kInt8}, {"int4", Quantization::kInt4}};
inline constexpr Choice<CacheKind> kCacheChoices[] = {{"radix", CacheKind::kRadix},
                                                      {"naive", CacheKind::kNaive}};
inline constexpr Choice<StepPolicy> kScheduleChoices[] = {
    {"mixed", StepPolicy::kMixed}, {"prefill-first", StepPolicy::kPrefillFirst}};
inline constexpr Choice<AdmissionPolicy> kAdmissionChoices[] = {
    {"optimistic", AdmissionPolicy::kOptimistic}, {"reserve", AdmissionPolicy::kReserve}};
inline constexpr Choice<QueuePolicy> kPolicyChoices[] = {{"priority", QueuePolicy::kPriority},
                                                         {"fcfs", QueuePolicy::kFcfs}};

inline constexpr Choice<KvKind> kKvKindChoices[] = {{"auto", KvKind::kAuto}, {"fp8", KvKind::kFp8}};

// What computes the sums over several GPUs.
enum class RankSumsBy : uint8_t { kOwn, kNccl };
inline constexpr Choice<RankSumsBy> kAllReduceChoices[] = {{"own", RankSumsBy::kOwn},
                                                           {"nccl", RankSumsBy::kNccl}};

// What becomes of a request whose prefix cannot be read from the prefix cache on disk.
inline constexpr Choice<KvFailurePolicy> kPrefixCacheErrorChoices[] = {
    {"recompute", KvFailurePolicy::kRecompute}, {"fail", KvFailurePolicy::kFail}};

// Source of the sampling parameters that neither an option nor a row sets.
enum class SamplingSource : uint8_t { kModel, kNeutral };
inline constexpr Choice<SamplingSource> kSamplingSourceChoices[] = {
    {"model", SamplingSource::kModel}, {"neutral", SamplingSource::kNeutral}};

enum class DeviceKind : uint8_t { kAuto, kCpu, kCuda };

struct DeviceOption {
  DeviceKind kind = DeviceKind::kAuto;
  std::vector<int> indices = {0};  // of kCuda: of each rank; empty: all GPUs
  std::string name = "auto";       // the value of --device

  int index() const { return indices.empty() ? 0 : indices[0]; }
};
// Parses auto, cpu, cuda, cuda:N, cuda:N,N,... or cuda:all; nullopt for other text. An N beyond int
// becomes its maximum.
std::optional<DeviceOption> ParseDevice(const std::string& name);

// Parses the value of --cpu-experts: a number of layers, all, or auto (kAutoHostLayers); nullopt
// for other text.
std::optional<int32_t> ParseCpuExperts(const std::string& text);

// Options of the model, its chat template and its control tokens.
struct ModelOptions {
  std::string model;
  std::string projector;      // of a GGUF file; "": none
  std::string chat_template;  // "": the model's
  std::optional<ContentForm> template_content;
  std::vector<std::string> template_args;  // K=V
  Thinking think = Thinking::kAuto;
  std::optional<ToolDialect> tool_dialect;  // unset: as the template and the vocabulary tell
  bool parse_special = false;
  bool no_parse_special = false;
  std::vector<std::string> adapters;  // NAME=DIR, or DIR
  std::string default_adapter;        // of rows that name none; "": the base answers
  std::string merge_adapter;          // the folder of one that is folded into the weights; "": none
  bool quiet = false;
  bool verbose = false;
};

// Prefixes that outlive the process, or at least the KV cache (load/prefix_cache.h).
struct PrefixCacheOptions {
  std::string folder;     // "": none
  int64_t max_bytes = 0;  // of the folder; 0: the default
  KvFailurePolicy on_error = KvFailurePolicy::kRecompute;
  int64_t host_bytes = 0;  // of the tier in memory; 0: none
};

// Adapters in memory at once, unless --max-adapters says otherwise: of rank 16 over a model of 8
// billion weights they take 5 GB.
inline constexpr int32_t kMaxAdapters = 32;

// Options of the device, the scheduler and the KV cache.
struct EngineOptions {
  DeviceOption device;
  std::optional<DType> dtype;  // unset: the type in the model's files
  Quantization quantize = Quantization::kNone;
  int32_t max_running_requests = 256;
  int32_t max_prefill_length = 0;      // 0: the device's default
  int32_t max_step_tokens = 0;         // prompts and answers together; 0: no limit of its own
  int32_t long_prefill_threshold = 0;  // 0: half of max_prefill_length while others wait
  int64_t max_seq_len = 0;             // 0: auto
  double memory_ratio = 0;             // 0: the device's default
  int32_t num_pages = 0;               // 0: chosen by the memory plan
  int32_t page_size = 16;
  KvKind kv_kind = KvKind::kAuto;
  // Pictures: whether the model's tower is left out, and the embeddings that a step makes and that
  // are kept (SchedulerOptions). A budget of 0: the device's default.
  bool no_images = false;
  int64_t encoder_budget = 0;
  int64_t encoder_cache = 16384;
  CacheKind cache = CacheKind::kRadix;
  StepPolicy schedule = StepPolicy::kMixed;
  AdmissionPolicy admission = AdmissionPolicy::kOptimistic;
  QueuePolicy policy = QueuePolicy::kPriority;
  bool disable_overlap = false;
  int32_t cuda_graph_max_rows = 256;    // 0: no graphs
  int32_t cuda_graph_max_tokens = 512;  // of steps that are no decode steps; 0: none as a graph
  // The layers whose experts are in the host's memory: ModelEngineOptions::num_host_layers.
  int32_t cpu_experts = 0;
  bool deterministic = false;
  bool profile_kernels = false;
  bool library_products = false;             // no option; of `bench products`
  int32_t threads = 0;                       // 0: the usable cores
  int32_t tensor_parallel = 1;               // ranks that run the model together
  RankSumsBy all_reduce = RankSumsBy::kOwn;  // of ranks on GPUs
  std::string cpu_target;
  // Most steps have few rows: of the CPU's targets, if none is named, the fastest at them.
  bool has_few_rows = false;
  bool pin_threads = false;
  std::string pack_cache;  // directory of packed weights; "": they are not written
  DraftOption drafts;
  int32_t max_adapters = kMaxAdapters;  // in memory at once
  PrefixCacheOptions prefix_cache;      // of run and chat
  // The share of its own rate that a chat keeps beside a batch; 0: no bound; -1: the device's
  // default.
  double chat_share = -1;
};

// Reports of run and chat about themselves.
struct ReportOptions {
  bool stats = false;
  std::string summary;  // "": no file
  std::string trace;    // "": no file
  std::string events;   // "": no file
};

// Defaults for rows and turns that do not set a value; unset ones are the model's.
struct SamplingOptions : SamplingOverrides {
  bool draws_seed = false;            // --seed -1: the program draws a seed
  std::optional<int64_t> max_tokens;  // -1: no limit
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::optional<int64_t> thought_budget;       // -1: no limit
  std::optional<std::string> thought_message;  // before the end that the limit forces
  SamplingSource sampling_defaults = SamplingSource::kModel;
  GrammarOptions grammar_options;
  AnswerGrammar grammar;  // what these give, after TakeGrammar
};

void AddModelOptions(OptionTable* app, ModelOptions* options);
void AddEngineOptions(OptionTable* app, EngineOptions* options);
void AddSamplingOptions(OptionTable* app, SamplingOptions* options);
void AddReportOptions(OptionTable* app, ReportOptions* options);
// Adds -o, --output. *output becomes the file, or "" for - (standard output). `what` is the
// beginning of the help line ("Write answers to").
TableOption* AddOutputOption(OptionTable* app, std::string* output, const std::string& what);

// Adds --plain, for commands that show an answer on a terminal.
TableOption* AddPlainOption(OptionTable* app, bool* plain);

// Check: the value is not empty.
std::string CheckNotEmpty(const std::string& text);

// Checks: the value is an integer (a number) in the range, which is [low, high], or (low, high] if
// `open`.
OptionCheck InRange(IntRange range);
OptionCheck InRange(NumberRange range);
OptionCheck IntegerIn(int64_t low, int64_t high);
OptionCheck NumberIn(double low, double high, bool open = false);

}  // namespace minisgl::load
