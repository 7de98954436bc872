#include "report/run_figures.h"

#include <cmath>
#include <utility>

#include "batch/run_input.h"
#include "minisgl/base/byte_order_mark.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"

namespace minisgl::report {
namespace {

// A hundred times the size of the files that this program writes.
constexpr uint64_t kFiguresBytesMax = 16 << 20;
constexpr uint64_t kValuesMax = 4 << 20;

constexpr double kNumberMax = 1e15;
constexpr int64_t kCountMax = int64_t{1} << 53;

Result<const Json*> Field(const Json& object, const char* key, const std::string& where) {
  const Json* value = object.Find(key);
  if (value == nullptr) {
    return BadInput("{}: has no {}; give a file that --summary of run or chat wrote", where, key);
  }
  return value;
}

// A text for display: other types count as missing.
std::string TextField(const Json& object, const char* key) {
  const Json* value = object.Find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

Result<std::optional<int64_t>> OptionalCount(const Json& json, const char* group, const char* key,
                                             const std::string& where) {
  const Json* object = json.Find(group);
  if (object == nullptr || object->Find(key) == nullptr) return std::optional<int64_t>();
  MINISGL_ASSIGN_OR_RETURN(const int64_t count, CountField(*object, key, where + ": " + group));
  return std::optional<int64_t>(count);
}

}  // namespace

Result<Json> ReadJsonFile(const std::string& path) {
  std::string text;
  if (path == "-") {
    MINISGL_ASSIGN_OR_RETURN(text, batch::ReadStandardInput(/*may_be_left=*/false));
  } else {
    MINISGL_ASSIGN_OR_RETURN(text, ReadFile(path, kFiguresBytesMax));
    DropByteOrderMark(&text);
  }
  Result<Json> json = ParseJson(text, {.values_max = kValuesMax});
  if (!json.ok()) {
    return BadInput("{}: {}; give a file that --summary of run or chat wrote", Visible(path, 400),
                    json.status().message());
  }
  return json;
}

Result<int64_t> CountField(const Json& object, const char* key, const std::string& where) {
  MINISGL_ASSIGN_OR_RETURN(const Json* value, Field(object, key, where));
  if (value->is_int() && value->as_int() >= 0 && value->as_int() <= kCountMax) {
    return value->as_int();
  }
  return BadInput("{}: {} must be an integer from 0 to 2^53 (found {})", where, key,
                  Visible(value->Dump(), 40));
}

Result<double> NumberField(const Json& object, const char* key, const std::string& where) {
  MINISGL_ASSIGN_OR_RETURN(const Json* value, Field(object, key, where));
  const double number = value->is_number() ? value->as_double() : -1;
  if (std::isfinite(number) && number >= 0 && number <= kNumberMax) return number;
  return BadInput("{}: {} must be a number from 0 to 1e15 (found {})", where, key,
                  Visible(value->Dump(), 40));
}

Result<RunFigures> ParseRunFigures(const Json& json, const std::string& where) {
  if (!json.is_object()) {
    return BadInput(
        "{}: must hold an object (found {}); give a file that --summary of run or chat wrote",
        where, json.TypeName());
  }
  RunFigures figures;
  figures.version = TextField(json, "version");
  figures.model = TextField(json, "model");
  figures.device = TextField(json, "device");
  figures.weights = TextField(json, "weights");
  MINISGL_ASSIGN_OR_RETURN(figures.seconds, NumberField(json, "seconds", where));
  const struct {
    const char* key;
    int64_t* value;
  } counts[] = {{"rows_done", &figures.rows_done},
                {"rows_failed", &figures.rows_failed},
                {"prompt_tokens", &figures.prompt_tokens},
                {"cached_tokens", &figures.cached_tokens},
                {"computed_tokens", &figures.computed_tokens},
                {"completion_tokens", &figures.completion_tokens},
                {"preemptions", &figures.preemptions}};
  for (const auto& [key, value] : counts) {
    MINISGL_ASSIGN_OR_RETURN(*value, CountField(json, key, where));
  }
  if (json.Find("rows_cancelled") != nullptr) {
    MINISGL_ASSIGN_OR_RETURN(figures.rows_cancelled, CountField(json, "rows_cancelled", where));
    if (figures.rows_cancelled > figures.rows_failed) {
      return BadInput("{}: rows_cancelled must be at most rows_failed, {} (found {})", where,
                      figures.rows_failed, figures.rows_cancelled);
    }
  }
  MINISGL_ASSIGN_OR_RETURN(figures.steps, OptionalCount(json, "scheduler", "steps", where));
  MINISGL_ASSIGN_OR_RETURN(figures.step_rows, OptionalCount(json, "scheduler", "step_rows", where));
  MINISGL_ASSIGN_OR_RETURN(figures.pages_total,
                           OptionalCount(json, "scheduler", "pages_total", where));
  MINISGL_ASSIGN_OR_RETURN(figures.page_size, OptionalCount(json, "options", "page_size", where));
  MINISGL_ASSIGN_OR_RETURN(figures.max_running_requests,
                           OptionalCount(json, "options", "max_running_requests", where));
  MINISGL_ASSIGN_OR_RETURN(figures.scored_tokens, OptionalCount(json, "scores", "tokens", where));
  if (figures.scored_tokens) {
    const Json* const perplexity = json.Find("scores")->Find("perplexity");
    // Accept any number: the perplexity of noise exceeds the ranges of NumberField.
    if (perplexity != nullptr && perplexity->is_number()) {
      figures.perplexity = perplexity->as_double();
    }
  }
  if (const Json* series = json.Find("time_series"); series != nullptr) {
    MINISGL_ASSIGN_OR_RETURN(figures.series, term::ParseTimeSeries(*series, where));
  }
  return figures;
}

}  // namespace minisgl::report
