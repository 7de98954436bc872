// What minisgl plan prints: lines for people, or one JSON object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "load/model_loader.h"
#include "minisgl/base/json.h"
#include "report/run_estimate.h"
#include "report/run_figures.h"

namespace minisgl::cli {

// Inputs of a plan besides its numbers.
struct PlanSubject {
  std::string file;  // name for messages
  load::ModelFacts facts;
  bool of_texts = false;  // that become vectors, labels or scores: there are no answers
  bool keeps_prefixes = true;
  std::optional<report::RunSpeed> speed;
  std::string first_bad;  // "FILE:LINE: code: message"
  int64_t raw_prompts = 0;
  bool answers_missing = false;  // from prompts of conversations
};

std::string PlanText(const report::RunEstimate& estimate, const PlanSubject& subject);
Json PlanJson(const report::RunEstimate& estimate, const PlanSubject& subject);

}  // namespace minisgl::cli
