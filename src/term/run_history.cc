#include "term/run_history.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::term {
namespace {

// Bounds the cost of drawing an untrusted file; far more than this program writes.
constexpr size_t kPointsMax = 100000;

double Ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Drops digits that carry no information and make the file longer.
double Rounded(double value) { return std::round(value * 1000) / 1000; }

// Interval as written to the file, so that rate times written interval gives the exact count even
// for short intervals. (An interval that rounds to zero is used unrounded.)
double WrittenSeconds(const RunSample& before, const RunSample& now) {
  const double seconds = Rounded(now.time_s) - Rounded(before.time_s);
  return seconds > 0 ? seconds : now.time_s - before.time_s;
}

// The single list of the values of a point in a file.
void AppendPoint(const RunSample& before, const RunSample& now, TimeSeries* series) {
  const double seconds = WrittenSeconds(before, now);
  const auto rate = [seconds](int64_t was, int64_t is) { return PerSecond(is - was, seconds); };
  series->time_s.push_back(now.time_s);
  series->prompt_tokens_per_s.push_back(rate(before.prompt_tokens, now.prompt_tokens));
  series->computed_tokens_per_s.push_back(rate(before.computed_tokens, now.computed_tokens));
  series->completion_tokens_per_s.push_back(rate(before.completion_tokens, now.completion_tokens));
  series->batch_size.push_back(Ratio(now.step_rows - before.step_rows, now.steps - before.steps));
  series->running.push_back(now.running);
  series->waiting.push_back(now.waiting);
  series->cache_hit_percent.push_back(100 * Ratio(now.cached_tokens - before.cached_tokens,
                                                  now.prompt_tokens - before.prompt_tokens));
  series->pages_used.push_back(now.pages_used);
  series->preemptions.push_back(static_cast<double>(now.preemptions - before.preemptions));
}

Status ParseColumn(const Json& json, const char* name, const std::string& where,
                   std::vector<double>* values) {
  const Json* column = json.Find(name);
  if (column == nullptr) {
    return BadInput("{}: time_series has no {}; give a file that --summary wrote", where, name);
  }
  if (!column->is_array()) {
    return BadInput("{}: time_series.{} must be an array (found {})", where, name,
                    column->TypeName());
  }
  if (column->as_array().size() > kPointsMax) {
    return BadInput("{}: time_series.{} has {} values (at most {})", where, name,
                    column->as_array().size(), kPointsMax);
  }
  for (const Json& value : column->as_array()) {
    const bool fits = value.is_number() && std::isfinite(value.as_double()) &&
                      value.as_double() >= 0 && value.as_double() <= 1e15;
    if (!fits) {
      return BadInput("{}: time_series.{}[{}] must be a number from 0 to 1e15 (found {})", where,
                      name, values->size(), Visible(value.Dump(), 40));
    }
    values->push_back(value.as_double());
  }
  return Status();
}

}  // namespace

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

RunSample RunSample::Of(const SchedulerStats& stats, int64_t rows, double time_s) {
  RunSample sample;
  sample.time_s = time_s;
  sample.rows = rows;
  sample.prompt_tokens = stats.prompt_tokens;
  sample.cached_tokens = stats.cached_tokens;
  sample.computed_tokens = stats.computed_tokens;
  sample.completion_tokens = stats.generated_tokens;
  sample.steps = stats.steps;
  sample.step_rows = stats.step_rows;
  sample.preemptions = stats.preemptions;
  sample.running = static_cast<double>(stats.running);
  sample.waiting = static_cast<double>(stats.waiting);
  sample.pages_used = static_cast<double>(PagesInUse(stats));
  return sample;
}

int64_t PagesInUse(const SchedulerStats& stats) {
  return stats.pages_total - stats.pages_free - (stats.pages_cached - stats.pages_locked);
}

// Between two calls, a gauge is assumed to change linearly.
void RunHistory::Gather(const RunSample& now) {
  const double half = std::max(now.time_s - last_added_.time_s, 0.0) / 2;
  running_ += half * (last_added_.running + now.running);
  waiting_ += half * (last_added_.waiting + now.waiting);
  pages_used_ += half * (last_added_.pages_used + now.pages_used);
  last_added_ = now;
}

void RunHistory::Keep(const RunSample& now) {
  const double seconds = now.time_s - (samples_.empty() ? 0 : samples_.back().time_s);
  if (seconds <= 0) return;
  RunSample sample = now;
  sample.running = std::exchange(running_, 0) / seconds;
  sample.waiting = std::exchange(waiting_, 0) / seconds;
  sample.pages_used = std::exchange(pages_used_, 0) / seconds;
  samples_.push_back(sample);
}

void RunHistory::Add(const RunSample& now) {
  Gather(now);
  const double last = samples_.empty() ? 0 : samples_.back().time_s;
  if (now.time_s - last < interval_s_) return;
  if (samples_.size() + 1 >= kSamplesMax) {  // one place is reserved for the end
    double begin = 0;
    for (size_t pair = 0; 2 * pair + 1 < samples_.size(); ++pair) {
      const RunSample first = samples_[2 * pair];
      RunSample second = samples_[2 * pair + 1];
      const double share = (first.time_s - begin) / (second.time_s - begin);
      const auto mean = [share](double a, double b) { return share * a + (1 - share) * b; };
      second.running = mean(first.running, second.running);
      second.waiting = mean(first.waiting, second.waiting);
      second.pages_used = mean(first.pages_used, second.pages_used);
      begin = second.time_s;
      samples_[pair] = second;
    }
    // With an odd number of samples, the last one stays.
    const size_t left = samples_.size() / 2;
    if (samples_.size() % 2 != 0) samples_[left] = samples_.back();
    samples_.resize((samples_.size() + 1) / 2);
    interval_s_ *= 2;
    if (now.time_s - samples_.back().time_s < interval_s_) return;
  }
  Keep(now);
}

void RunHistory::End(const RunSample& now) {
  if (!samples_.empty() && now.time_s - samples_.back().time_s < kIntervalMin_s / 10) {
    // The interval is too short for meaningful rates: merge it with the previous one.
    RunSample last = now;
    last.time_s = std::max(now.time_s, samples_.back().time_s);
    last.running = samples_.back().running;
    last.waiting = samples_.back().waiting;
    last.pages_used = samples_.back().pages_used;
    samples_.back() = last;
    return;
  }
  Gather(now);
  Keep(now);
}

const std::vector<TimeSeriesColumn>& TimeSeriesColumns() {
  static const std::vector<TimeSeriesColumn> columns = {
      {"time_s", &TimeSeries::time_s},
      {"prompt_tokens_per_s", &TimeSeries::prompt_tokens_per_s},
      {"computed_tokens_per_s", &TimeSeries::computed_tokens_per_s},
      {"completion_tokens_per_s", &TimeSeries::completion_tokens_per_s},
      {"batch_size", &TimeSeries::batch_size},
      {"running", &TimeSeries::running},
      {"waiting", &TimeSeries::waiting},
      {"cache_hit_percent", &TimeSeries::cache_hit_percent},
      {"pages_used", &TimeSeries::pages_used},
      {"preemptions", &TimeSeries::preemptions},
  };
  return columns;
}

Json RunHistory::ToJson() const {
  TimeSeries series;
  RunSample before;
  for (const RunSample& sample : samples_) {
    AppendPoint(before, sample, &series);
    before = sample;
  }
  Json json = Json(Json::Object());
  for (const TimeSeriesColumn& column : TimeSeriesColumns()) {
    Json values = Json(Json::Array());
    for (const double value : series.*column.values) values.Append(Rounded(value));
    json.Set(column.name, std::move(values));
  }
  return json;
}

Result<TimeSeries> ParseTimeSeries(const Json& json, const std::string& where) {
  if (!json.is_object()) {
    return BadInput("{}: time_series must be an object (found {})", where, json.TypeName());
  }
  TimeSeries series;
  for (const TimeSeriesColumn& column : TimeSeriesColumns()) {
    std::vector<double>& values = series.*column.values;
    MINISGL_RETURN_IF_ERROR(ParseColumn(json, column.name, where, &values));
    if (values.size() != series.time_s.size()) {
      return BadInput("{}: time_series.{} has {} values, but time_s has {}", where, column.name,
                      values.size(), series.time_s.size());
    }
  }
  for (size_t i = 0; i + 1 < series.time_s.size(); ++i) {
    if (series.time_s[i] < series.time_s[i + 1]) continue;
    return BadInput("{}: time_series.time_s[{}] must be later than the one before it (found {})",
                    where, i + 1, series.time_s[i + 1]);
  }
  return series;
}

}  // namespace minisgl::term
