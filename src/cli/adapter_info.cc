// See adapter_info.h.
#include "cli/adapter_info.h"

#include <fmt/core.h>

#include <vector>

#include "cli/gguf_info.h"
#include "minisgl/base/utf8.h"
#include "minisgl/model/adapters.h"
#include "minisgl/weights/adapter.h"
#include "term/progress.h"

namespace minisgl::cli {
namespace {

std::string Changes(const Adapter& adapter) {
  std::string text;
  for (const AdaptedKind& kind : AdaptedKinds(adapter)) {
    if (!text.empty()) text += ", ";
    text += Visible(kind.name, 200);
    if (kind.num_modules > 1) text += fmt::format(" x{}", kind.num_modules);
    std::vector<std::string> parts;
    if (kind.rank_max > 0) {
      parts.push_back(kind.rank_min == kind.rank_max
                          ? fmt::format("rank {}", kind.rank_max)
                          : fmt::format("ranks {} to {}", kind.rank_min, kind.rank_max));
    }
    if (kind.has_magnitude) parts.emplace_back("DoRA");
    if (kind.has_bias) parts.emplace_back("bias");
    if (kind.is_whole) parts.emplace_back("whole");
    if (kind.has_tokens) parts.emplace_back("single tokens");
    std::string of;
    for (const std::string& part : parts) of += (of.empty() ? "" : ", ") + part;
    if (!of.empty()) text += " (" + of + ")";
  }
  return text;
}

Status DescribeOne(const std::string& name, const Adapter& adapter, const ModelConfig& config,
                   std::string* out) {
  InfoLine("adapter",
           fmt::format("{}: {}, {}", Visible(name, 200), Visible(adapter.dir, 400),
                       term::FormatBytes(adapter.num_bytes)),
           out);
  InfoLine("  changes", Changes(adapter), out);
  if (!adapter.base.empty()) InfoLine("  made for", Visible(adapter.base, 400), out);
  InfoLine("  content", HashText(adapter.hash), out);
  const Status fits = CheckAdapterFits(config, adapter);
  InfoLine("  fits", fits.ok() ? "yes" : "no: " + fits.message(), out);
  return fits;
}

}  // namespace

Status DescribeAdapters(const TextModel& text, const ModelConfig& config, std::string* out) {
  Status status;
  const auto describe = [&](const std::string& name, const Adapter& adapter) {
    const Status fits = DescribeOne(name, adapter, config, out);
    if (status.ok()) status = fits;
  };
  if (text.adapters != nullptr) {
    for (const NamedAdapter& adapter : text.adapters->list) describe(adapter.name, *adapter.files);
  }
  if (text.merged_adapter != nullptr) describe("folded in", *text.merged_adapter);
  return status;
}

}  // namespace minisgl::cli
