// What a benchmark says: lines for a person as they are measured, and all figures as one JSON
// object at the end.
//
// Lines go to standard output, unless the JSON goes there. Used by one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "term/output.h"

namespace minisgl::bench {

class BenchReport {
 public:
  // Makes the file `json_path` ("": none, "-": standard output), as Output::Open does.
  static Result<std::unique_ptr<BenchReport>> Open(const std::string& json_path, bool force);

  void Line(std::string_view name, std::string_view text);
  // The object to fill.
  Json& json() { return json_; }
  // Writes the JSON; tells the first fault of any writing.
  Status Finish();
  bool pipe_closed() const;

 private:
  BenchReport() = default;

  std::unique_ptr<term::Output> text_;  // null where the JSON takes its place
  std::unique_ptr<term::Output> json_output_;
  Json json_ = Json(Json::Object());
  Status status_;
};

// "4.30 TB/s", "790 TFLOP/s", "3.70 s", "287.4 us": three digits and a unit.
std::string FormatBytesPerSecond(double rate);
std::string FormatFlopsPerSecond(double rate);
std::string FormatSeconds(double seconds);
// "87.0 %"
std::string FormatPercent(double share);

}  // namespace minisgl::bench
