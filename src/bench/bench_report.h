// Output of a benchmark: text lines as figures are measured, and all figures as one JSON object at
// the end.
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
  // Creates the file `json_path` ("": none, "-": standard output), as Output::Open does.
  static Result<std::unique_ptr<BenchReport>> Open(const std::string& json_path, bool force);

  void Line(std::string_view name, std::string_view text);
  // The object to fill.
  Json& json() { return json_; }
  // Writes the JSON; returns the first error of any write.
  Status Finish();
  bool pipe_closed() const;

 private:
  BenchReport() = default;

  std::unique_ptr<term::Output> text_;  // null if the JSON goes to standard output
  std::unique_ptr<term::Output> json_output_;
  Json json_ = Json(Json::Object());
  Status status_;
};

// Three digits and a unit: "4.30 TB/s", "790 TFLOP/s", "3.70 s", "287.4 us".
std::string FormatBytesPerSecond(double rate);
std::string FormatFlopsPerSecond(double rate);
std::string FormatSeconds(double seconds);
// "87.0 %"
std::string FormatPercent(double share);

}  // namespace minisgl::bench
