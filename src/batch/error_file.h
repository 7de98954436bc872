// The file of error rows (--errors), beside the output of answers. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/status.h"
#include "term/output.h"

namespace minisgl::batch {

class ErrorFile {
 public:
  explicit ErrorFile(std::unique_ptr<term::Output> output) : output_(std::move(output)) {}

  // Writes the error row of the row `index`.
  Status Write(int64_t index, std::string_view row) {
    MINISGL_RETURN_IF_ERROR(output_->Write(row));
    if (notes_rows_) Note(index);
    return Status();
  }
  // From now on notes which rows are here, a bit for each row of the input.
  void NoteRows() { notes_rows_ = true; }
  void Note(int64_t index) {
    const auto place = static_cast<size_t>(index);
    if (place >= rows_.size()) rows_.resize(place + 1);
    rows_[place] = true;
  }
  bool Has(int64_t index) const {
    const auto place = static_cast<size_t>(index);
    return place < rows_.size() && rows_[place];
  }

  term::Output* output() { return output_.get(); }

 private:
  const std::unique_ptr<term::Output> output_;
  bool notes_rows_ = false;
  std::vector<bool> rows_;  // by index
};

}  // namespace minisgl::batch
