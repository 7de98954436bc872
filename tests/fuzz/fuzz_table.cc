// Any bytes as an input of a template: a table, JSON objects, or either compressed. Each record is
// a row or an error row, in two readings the same; cells that are written are read again.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "batch/row_source.h"
#include "batch/row_template.h"
#include "batch/run_input.h"
#include "batch/table_text.h"
#include "minisgl/base/check.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/utf8.h"

namespace {

using namespace minisgl;

const batch::RowTemplate& Template() {
  static const std::unique_ptr<batch::RowTemplate> made = [] {
    batch::TemplateOptions options;
    options.prompt = "{{ a }}{% if b %}{{ b | upper }}{% endif %}{{ row }}";
    auto parsed = batch::RowTemplate::Make(options, std::nullopt, batch::RowTemplate::Use::kPrompt);
    MINISGL_CHECK(parsed.ok(), "{}", parsed.status().message());
    return std::move(parsed).value();
  }();
  return *made;
}

void CheckCells(const std::string& record, char separator) {
  const auto cells = batch::ParseRecord(record, separator);
  if (!cells.ok()) return;
  std::string written;
  for (size_t i = 0; i < cells->size(); ++i) {
    if (i > 0) written += separator;
    batch::AppendField((*cells)[i], separator, cells->size() == 1, &written);
  }
  const auto again = batch::ParseRecord(written, separator);
  MINISGL_CHECK(again.ok() && *again == *cells, "cells are not read as they were written");
}

// The prompts and errors of all rows, one after the other.
std::string ReadRows(batch::LineReader* reader, std::optional<char> separator) {
  batch::FileRowSource source(reader, /*lenient=*/false, /*check_ids=*/true);
  source.UseTemplate(&Template());
  std::string all;
  batch::ParsedRow row;
  batch::RowSource::Outcome outcome = batch::RowSource::Outcome::kEnd;
  int64_t line = 0;
  while ((outcome = source.Next(0, &row)) == batch::RowSource::Outcome::kRow) {
    MINISGL_CHECK(row.row.line > line, "line {} after line {}", row.row.line, line);
    line = row.row.line;
    const std::string& text = row.error ? row.error->message : row.row.prompt;
    MINISGL_CHECK(IsValidUtf8(text), "ill-formed text");
    if (row.error) MINISGL_CHECK(Visible(text, text.size()) == text, "not one readable line");
    all += text + "\n";
  }
  if (outcome == batch::RowSource::Outcome::kFailed) all += source.status().message();
  MINISGL_CHECK(reader->Rewind().ok(), "cannot be read again");
  std::string record;
  while (separator && reader->Next(0, &record) == batch::LineReader::Outcome::kLine) {
    CheckCells(record, *separator);
  }
  MINISGL_CHECK(reader->Rewind().ok(), "cannot be read again");
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int file = memfd_create("input", MFD_CLOEXEC);
  MINISGL_CHECK(file >= 0, "no file in memory");
  MINISGL_CHECK(WriteAll(file, {reinterpret_cast<const char*>(data), size}), "cannot write");
  for (const std::optional<char> separator : {std::optional(','), std::optional('\t'), {}}) {
    auto reader = batch::LineReader::Open("/proc/self/fd/" + std::to_string(file));
    MINISGL_CHECK(reader.ok(), "{}", reader.status().message());
    if (separator) reader->ReadTable(*separator);
    const std::string first = ReadRows(&*reader, separator);
    MINISGL_CHECK(ReadRows(&*reader, separator) == first, "another reading is different");
  }
  close(file);
  return 0;
}
