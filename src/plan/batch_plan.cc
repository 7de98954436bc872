// A plan as JSON, for fault reports and for tests that compare traces.
#include "minisgl/batch_plan.h"

#include <span>

#include "minisgl/base/json.h"

namespace minisgl {
namespace {

template <typename Int>
Json ToArray(const std::vector<Int>& values) {
  Json::Array array;
  array.reserve(values.size());
  for (const Int value : values) array.emplace_back(static_cast<int64_t>(value));
  return array;
}

Json SamplingToJson(const SamplingParams& sampling) {
  Json json;
  json.Set("temperature", sampling.temperature);
  json.Set("top_k", sampling.top_k);
  json.Set("top_p", sampling.top_p);
  json.Set("min_p", sampling.min_p);
  json.Set("repetition_penalty", sampling.repetition_penalty);
  json.Set("presence_penalty", sampling.presence_penalty);
  json.Set("frequency_penalty", sampling.frequency_penalty);
  json.Set("seed", sampling.seed);
  Json::Array bias;
  for (const auto& [id, value] : sampling.logit_bias) {
    bias.emplace_back(Json::Array{id, static_cast<double>(value)});
  }
  json.Set("logit_bias", std::move(bias));
  json.Set("num_logprobs", sampling.num_logprobs);
  if (sampling.num_prompt_logprobs >= 0) {
    json.Set("num_prompt_logprobs", sampling.num_prompt_logprobs);
  }
  json.Set("min_tokens", sampling.min_tokens);
  json.Set("banned_until_min", ToArray(sampling.banned_until_min));
  return json;
}

// `set_more` sets the members that a span has beside its tokens.
template <typename Span, typename SetMore>
Json SpansToJson(const std::vector<Span>& spans, const SetMore& set_more) {
  Json::Array array;
  for (const Span& span : spans) {
    Json entry;
    entry.Set("token", span.token).Set("count", span.count);
    set_more(span, &entry);
    array.push_back(std::move(entry));
  }
  return Json(std::move(array));
}

// Parts that are empty are left out.
void AddExtras(const PlanExtras& extras, Json* json) {
  if (!extras.dropped.empty()) json->Set("dropped", ToArray(extras.dropped));
  if (!extras.encoded.empty()) {
    Json::Array runs;
    for (const EncoderRun& run : extras.encoded) {
      Json entry;
      entry.Set("source", run.source).Set("num_embeddings", run.num_embeddings);
      if (run.begin > 0 || !run.is_last()) entry.Set("begin", run.begin).Set("end", run.end);
      runs.push_back(std::move(entry));
    }
    json->Set("encoded", std::move(runs));
  }
  if (!extras.embeddings.empty()) {
    json->Set("embeddings", SpansToJson(extras.embeddings, [](const auto& run, Json* entry) {
                entry->Set("first", run.first).Set("source", run.source);
              }));
  }
  if (!extras.positions.empty()) {
    json->Set("position_spans", SpansToJson(extras.positions, [](const auto& span, Json* entry) {
                entry->Set("offset", span.offset);
              }));
    Json::Array positions;
    for (const RopePosition& position : extras.rope_positions) {
      positions.emplace_back(Json::Array{position[0], position[1], position[2]});
    }
    json->Set("rope_positions", std::move(positions));
  }
  if (!extras.adapters.empty()) {
    json->Set("adapters", SpansToJson(extras.adapters, [](const auto& span, Json* entry) {
                entry->Set("slot", span.slot);
              }));
  }
  if (!extras.hidden.empty()) {
    json->Set("hidden", SpansToJson(extras.hidden, [](const auto&, Json*) {}));
  }
  if (!extras.pooling.empty()) {
    json->Set("pooling", SpansToJson(extras.pooling, [](const auto& span, Json* entry) {
                entry->Set("kind", static_cast<int>(span.pooling));
                entry->Set("begins", span.begins).Set("ends", span.ends);
              }));
  }
}

}  // namespace

std::string BatchPlan::ToJson() const {
  Json json;
  json.Set("step", step);
  Json::Array table_writes;
  for (const PageTableWrite& write : page_table_writes) {
    Json entry;
    entry.Set("table_row", write.table_row).Set("first", write.first);
    entry.Set("count", write.count).Set("offset", write.offset);
    table_writes.push_back(std::move(entry));
  }
  json.Set("page_table_writes", std::move(table_writes));
  json.Set("pages", ToArray(pages));
  if (!window_pages.empty()) json.Set("window_pages", ToArray(window_pages));
  Json::Array pool_writes;
  for (const TokenPoolWrite& write : token_pool_writes) {
    Json entry;
    entry.Set("table_row", write.table_row).Set("first", write.first);
    entry.Set("count", write.count).Set("offset", write.offset);
    pool_writes.push_back(std::move(entry));
  }
  json.Set("token_pool_writes", std::move(pool_writes));
  json.Set("tokens", ToArray(tokens));
  json.Set("positions", ToArray(positions));
  json.Set("slots", ToArray(slots));
  if (!window_slots.empty()) json.Set("window_slots", ToArray(window_slots));
  json.Set("table_row", ToArray(table_row));
  json.Set("row_begin", ToArray(row_begin));
  json.Set("kv_len", ToArray(kv_len));
  json.Set("wants_token", ToArray(wants_token));
  json.Set("num_drafts", ToArray(num_drafts));
  if (!makes_drafts.empty()) json.Set("makes_drafts", ToArray(makes_drafts));
  if (!num_scored.empty()) {
    json.Set("num_scored", ToArray(num_scored)).Set("scored_ids", ToArray(scored_ids));
  }
  if (!is_masked.empty()) json.Set("is_masked", ToArray(is_masked));
  if (!state_segments.empty()) {
    Json::Array segments;
    for (const StateSegment& segment : state_segments) {
      Json entry;
      entry.Set("row", segment.row).Set("num_tokens", segment.num_tokens);
      entry.Set("read", segment.read).Set("write", segment.write);
      segments.push_back(std::move(entry));
    }
    json.Set("state_segments", std::move(segments));
  }
  AddExtras(extras, &json);
  json.Set("prompt_len", ToArray(prompt_len));
  Json::Array rows;
  for (const SamplingParams* params : sampling) {
    rows.push_back(params == nullptr ? Json() : SamplingToJson(*params));
  }
  json.Set("sampling", std::move(rows));
  return json.Dump();
}

}  // namespace minisgl
