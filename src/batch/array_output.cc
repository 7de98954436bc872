// See array_output.h.
#include "batch/array_output.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "batch/run_input.h"
#include "batch/table_output.h"
#include "minisgl/base/base64.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"
#include "minisgl/tensor/dtype.h"

namespace minisgl::batch {
namespace {

constexpr const char* kArrayEnding = ".npy";

// The header has this length whatever the shape is, so that it can be written before the shape is
// known. It is a multiple of 64, as the format asks.
constexpr size_t kHeaderBytes = 128;
constexpr size_t kLengthPlace = 8, kTextPlace = 10;  // in the header

std::string HeaderOf(bool is_f16, int64_t rows, int64_t width) {
  std::string header("\x93NUMPY\x01\x00", kLengthPlace);
  header += static_cast<char>(kHeaderBytes - kTextPlace);
  header += '\0';
  header += fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}",
                        is_f16 ? "<f2" : "<f4", rows, width);
  header.resize(kHeaderBytes - 1, ' ');
  return header + "\n";
}

void AppendLittleEndian(uint32_t bits, int num_bytes, std::string* out) {
  for (int i = 0; i < num_bytes; ++i) *out += static_cast<char>(bits >> (8 * i) & 0xFF);
}

// The numbers of a vector as a row has them: a list, or the base64 of little-endian f32.
std::optional<std::vector<float>> NumbersOf(const Json& json) {
  std::vector<float> numbers;
  if (json.is_array()) {
    for (const Json& number : json.as_array()) {
      if (!number.is_number() && !number.is_null()) return std::nullopt;
      numbers.push_back(number.is_null() ? std::numeric_limits<float>::quiet_NaN()
                                         : static_cast<float>(number.as_double()));
    }
    return numbers;
  }
  if (!json.is_string()) return std::nullopt;
  const std::optional<std::string> bytes = DecodeBase64(json.as_string());
  if (!bytes || bytes->size() % sizeof(float) != 0) return std::nullopt;
  for (size_t at = 0; at < bytes->size(); at += sizeof(float)) {
    uint32_t bits = 0;
    for (size_t i = 0; i < sizeof(float); ++i) {
      bits |= uint32_t{static_cast<uint8_t>((*bytes)[at + i])} << (8 * i);
    }
    float number = 0;
    std::memcpy(&number, &bits, sizeof(number));
    numbers.push_back(number);
  }
  return numbers;
}

// An array that is written row by row.
class ArrayFile {
 public:
  static Result<std::unique_ptr<ArrayFile>> Begin(const std::string& path, bool is_f16) {
    std::unique_ptr<ArrayFile> array(new ArrayFile());
    array->is_f16_ = is_f16;
    MINISGL_ASSIGN_OR_RETURN(array->file_, FileReplacement::Begin(path, {.sole_writer = true}));
    MINISGL_RETURN_IF_ERROR(array->file_->Write(HeaderOf(is_f16, 0, 0)));
    return array;
  }
  // kBadInput if vectors before it have another length.
  Status Add(const std::vector<float>& vector) {
    if (width_ < 0) {
      width_ = std::ssize(vector);
      for (; num_early_ > 0; --num_early_) MINISGL_RETURN_IF_ERROR(AddNaN());
    }
    if (width_ != std::ssize(vector)) {
      return BadInput("a vector of {} elements, and those before have {}", vector.size(), width_);
    }
    bytes_.clear();
    for (const float value : vector) Append(value);
    ++num_rows_;
    return file_->Write(bytes_);
  }
  Status AddNaN() {
    if (width_ < 0) {  // the length is known with the first vector
      ++num_early_;
      return Status();
    }
    bytes_.clear();
    for (int64_t i = 0; i < width_; ++i) Append(std::numeric_limits<float>::quiet_NaN());
    ++num_rows_;
    return file_->Write(bytes_);
  }
  Status Commit() {
    MINISGL_RETURN_IF_ERROR(
        file_->WriteAt(0, HeaderOf(is_f16_, num_rows_ + num_early_, std::max<int64_t>(width_, 0))));
    return file_->Commit();
  }

 private:
  ArrayFile() = default;
  void Append(float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    AppendLittleEndian(is_f16_ ? FloatToF16(value) : bits, is_f16_ ? 2 : 4, &bytes_);
  }

  std::unique_ptr<FileReplacement> file_;
  bool is_f16_ = false;
  int64_t width_ = -1, num_rows_ = 0;
  int64_t num_early_ = 0;  // error rows before the first vector
  std::string bytes_;
};

// Adds the vectors of one row to the array, and a line for each to the other file.
Status AddRow(const Json& row, ArrayFile* array, FileReplacement* ids) {
  const Json *const id = row.Find("id"), *const index = row.Find("index");
  if (id == nullptr || index == nullptr) return BadInput("is no row of minisgl embed");
  const auto name = [&](std::optional<int64_t> text, const Json* error) {
    Json line = Json(Json::Object());
    line.Set("id", *id).Set("index", *index);
    if (text) line.Set("text", *text);
    if (error != nullptr) line.Set("error", *error);
    return ids->Write(line.Dump() + "\n");
  };
  if (const Json* const error = row.Find("error")) {
    const Json* const code = error->Find("code");
    MINISGL_RETURN_IF_ERROR(name(std::nullopt, code == nullptr ? error : code));
    return array->AddNaN();
  }
  const auto add = [&](const Json& vector, std::optional<int64_t> text) -> Status {
    const std::optional<std::vector<float>> numbers = NumbersOf(vector);
    if (!numbers) return BadInput("has no vector");
    MINISGL_RETURN_IF_ERROR(array->Add(*numbers));
    return name(text, nullptr);
  };
  if (const Json* const vector = row.Find("embedding")) return add(*vector, std::nullopt);
  const Json* const vectors = row.Find("embeddings");
  if (vectors == nullptr || !vectors->is_array()) return BadInput("has no vector");
  int64_t text = 0;
  for (const Json& vector : vectors->as_array()) MINISGL_RETURN_IF_ERROR(add(vector, text++));
  return Status();
}

}  // namespace

Status TakeArrayOutput(RunOptions* options) {
  const bool is_array = options->output.ends_with(kArrayEnding);
  if (options->purpose != RowPurpose::kEmbed) return Status();
  if (!is_array) {
    if (!options->vectors.in_f16) return Status();
    return UsageError("--npy-dtype applies to an array; give -o a name that ends in {}",
                      kArrayEnding);
  }
  if (!options->file) {
    return UsageError("-o {}: an array has the vectors of rows; give --file, or another name",
                      Visible(options->output, 400));
  }
  // Rows have the exact bits, in the shortest form.
  options->vectors.in_base64 = true;
  MINISGL_RETURN_IF_ERROR(TakeFinishedFile(*options, "-o", &options->output, &options->array));
  MINISGL_RETURN_IF_ERROR(CheckReplaces(*options, ArrayIdsPath(options->array)));
  if (!options->errors.empty() && IsSamePlace(options->errors, ArrayIdsPath(options->array))) {
    return MakeStatus(StatusCode::kCannotCreate,
                      "--errors {}: the ids of {} are written there; choose another",
                      Visible(options->errors, 400), Visible(options->array, 400));
  }
  return Status();
}

std::string ArrayIdsPath(const std::string& array) { return array + ".ids.jsonl"; }

Status WriteArray(const RunOptions& options) {
  MINISGL_ASSIGN_OR_RETURN(LineReader rows, LineReader::Open(options.output));
  MINISGL_ASSIGN_OR_RETURN(
      const auto ids, FileReplacement::Begin(ArrayIdsPath(options.array), {.sole_writer = true}));
  MINISGL_ASSIGN_OR_RETURN(const auto array,
                           ArrayFile::Begin(options.array, options.vectors.in_f16));
  std::string line;
  LineReader::Outcome outcome = LineReader::Outcome::kLine;
  while ((outcome = rows.Next(0, &line)) == LineReader::Outcome::kLine) {
    const Result<Json> row = ParseJson(line);
    const Status added = row.ok() ? AddRow(*row, array.get(), ids.get()) : row.status();
    if (!added.ok()) {
      return added.WithPrefix(
          fmt::format("{}:{}", Visible(options.output, 400), rows.line_number()));
    }
  }
  MINISGL_RETURN_IF_ERROR(rows.status());
  if (outcome == LineReader::Outcome::kTooLong) {
    return BadInput("{}:{}: is longer than {} bytes", Visible(options.output, 400),
                    rows.line_number(), kRowBytesMax);
  }
  MINISGL_RETURN_IF_ERROR(ids->Commit());
  return array->Commit();
}

}  // namespace minisgl::batch
