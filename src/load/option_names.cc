#include "load/option_names.h"

namespace minisgl::load {

const char* OptionName(Setting setting) {
  switch (setting) {
    case Setting::kAllReduce:
      return "--all-reduce";
    case Setting::kChatTemplate:
      return "--chat-template";
    case Setting::kCpuExperts:
      return "--cpu-experts";
    case Setting::kDeterministic:
      return "--deterministic";
    case Setting::kDType:
      return "--dtype";
    case Setting::kKvDType:
      return "--kv-dtype";
    case Setting::kMaxPrefillLength:
      return "--max-prefill-length";
    case Setting::kMaxRunningRequests:
      return "--max-running-requests";
    case Setting::kMaxSeqLen:
      return "--max-seq-len";
    case Setting::kMemoryRatio:
      return "--memory-ratio";
    case Setting::kNumPages:
      return "--num-pages";
    case Setting::kPackCache:
      return "--pack-cache";
    case Setting::kPageSize:
      return "--page-size";
    case Setting::kPinThreads:
      return "--pin-threads";
    case Setting::kPrefixCache:
      return "--prefix-cache";
    case Setting::kPrefixCacheSize:
      return "--prefix-cache-size";
    case Setting::kProjector:
      return "--mmproj";
    case Setting::kQuantize:
      return "--quantize";
    case Setting::kSpeculate:
      return "--speculate";
    case Setting::kTemplateContent:
      return "--template-content";
    case Setting::kTensorParallel:
      return "--tensor-parallel";
    case Setting::kToolDialect:
      return "--tool-dialect";
  }
  return "";
}

}  // namespace minisgl::load
