// The segments of a step's rows, with the slots that they read and write, as operations on layers
// with a state take them, and those slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "minisgl/ops_params.h"

namespace minisgl {

class StateRows {
 public:
  // A row of `count` tokens, which begins from slot `from` (-1: zeros).
  void Add(int32_t count, int32_t from, int32_t to) {
    Append(count, {num_tokens(), num_spans(), from, to});
    of_row_.push_back(num_spans());
  }
  // A segment that continues the last one.
  void Continue(int32_t count, int32_t to) {
    const StateSpan last = spans_[spans_.size() - 2];
    Append(count, {num_tokens(), last.row_first, last.write, to});
    of_row_.back() = num_spans();
  }
  // Rows of padding, as graphs have.
  void Pad(int32_t num_rows) { of_row_.insert(of_row_.end(), num_rows, num_spans()); }

  int32_t num_tokens() const { return spans_.back().begin; }
  int32_t num_rows() const { return static_cast<int32_t>(of_row_.size()) - 1; }
  const std::vector<StateSpan>& spans() const { return spans_; }
  const std::vector<int32_t>& of_row() const { return of_row_; }
  // For operations on the host.
  StateSegments view() const { return {.spans = spans_.data(), .count = num_spans()}; }

 private:
  static constexpr StateSpan kEnd = {.begin = 0, .row_first = 0, .read = -1, .write = -1};

  int32_t num_spans() const { return static_cast<int32_t>(spans_.size()) - 1; }
  void Append(int32_t count, const StateSpan& span) {
    spans_.back() = span;
    spans_.push_back(kEnd);
    spans_.back().begin = span.begin + count;
  }

  std::vector<StateSpan> spans_ = {kEnd};
  std::vector<int32_t> of_row_ = {0};
};

// Zeros in the columns that fill up the last block of each head, as an engine has them. `slots`:
// [slots, RecurrenceStateFloats].
inline void ClearFillColumns(int64_t key_dim, int64_t value_dim, std::vector<float>* slots) {
  const int64_t head = StateHeadFloats(key_dim, value_dim);
  for (int64_t first = 0; first < std::ssize(*slots); first += head) {
    for (int64_t n = 0; n < key_dim; ++n) {
      for (int64_t p = value_dim; p % kStateColumns != 0; ++p) {
        (*slots)[static_cast<size_t>(first + RecurrenceStateAt(key_dim, n, p))] = 0;
      }
    }
  }
}

}  // namespace minisgl
