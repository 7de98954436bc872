// The settings that messages name. A room names a setting by its enumerator; the front end of the
// program decides how the name is spelled ("--max-seq-len").
#pragma once

#include <cstdint>

namespace minisgl {

enum class Setting : uint8_t {
  kAllReduce,
  kChatTemplate,
  kCpuExperts,
  kDeterministic,
  kDType,
  kKvDType,
  kMaxPrefillLength,
  kMaxRunningRequests,
  kMaxSeqLen,
  kMemoryRatio,
  kNumPages,
  kPackCache,
  kPageSize,
  kPinThreads,
  kPrefixCache,
  kPrefixCacheSize,
  kProjector,
  kQuantize,
  kSpeculate,
  kTemplateContent,
  kTensorParallel,
  kToolDialect,
};

// Returns the name of `setting` for a message: "max_seq_len", or the front end's spelling. Does not
// allocate.
const char* SettingName(Setting setting) noexcept;

// Sets the spelling. Call it before any thread starts; `name` must not allocate.
void SetSettingNames(const char* (*name)(Setting setting));

}  // namespace minisgl
