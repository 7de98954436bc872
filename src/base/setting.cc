#include "minisgl/base/setting.h"

namespace minisgl {
namespace {

const char* NeutralName(Setting setting) {
  switch (setting) {
    case Setting::kAllReduce:
      return "all_reduce";
    case Setting::kChatTemplate:
      return "chat_template";
    case Setting::kCpuExperts:
      return "cpu_experts";
    case Setting::kDeterministic:
      return "deterministic";
    case Setting::kDType:
      return "dtype";
    case Setting::kKvDType:
      return "kv_dtype";
    case Setting::kMaxPrefillLength:
      return "max_prefill_length";
    case Setting::kMaxRunningRequests:
      return "max_running_requests";
    case Setting::kMaxSeqLen:
      return "max_seq_len";
    case Setting::kMemoryRatio:
      return "memory_ratio";
    case Setting::kNumPages:
      return "num_pages";
    case Setting::kPackCache:
      return "pack_cache";
    case Setting::kPageSize:
      return "page_size";
    case Setting::kPinThreads:
      return "pin_threads";
    case Setting::kPrefixCache:
      return "prefix_cache";
    case Setting::kPrefixCacheSize:
      return "prefix_cache_size";
    case Setting::kProjector:
      return "projector";
    case Setting::kQuantize:
      return "quantize";
    case Setting::kSpeculate:
      return "speculate";
    case Setting::kTemplateContent:
      return "template_content";
    case Setting::kTensorParallel:
      return "tensor_parallel";
    case Setting::kToolDialect:
      return "tool_dialect";
  }
  return "";
}

const char* (*g_name)(Setting setting) = NeutralName;

}  // namespace

const char* SettingName(Setting setting) noexcept { return g_name(setting); }

void SetSettingNames(const char* (*name)(Setting setting)) { g_name = name; }

}  // namespace minisgl
