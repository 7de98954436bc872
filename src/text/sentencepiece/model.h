// A sentencepiece model as plain data. It is read from tokenizer.model by a bounded reader and
// written again for the library, which therefore receives only validated bytes.
//
// The packaged library (0.1.97) trusts its input in places: it walks normalisation tables without
// bounds, recurses into nested unknown groups, and reads results of prefix searches past their
// array. Read() rejects such files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "text/piece.h"

namespace minisgl::text {

inline constexpr size_t kPiecesMax = 1'000'000;

enum class PieceType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct SentencePiece {
  std::string text;
  float score = 0.0f;
  PieceType type = PieceType::kNormal;
};

struct SentencePieceModel {
  enum class Kind { kUnigram = 1, kBpe = 2 };

  std::vector<SentencePiece> pieces;
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;
  std::string unk_surface = " \xE2\x81\x87 ";
  int32_t bos_id = 1, eos_id = 2, pad_id = -1;  // as trained; not necessarily control pieces
  std::string charsmap;                         // normalisation table, empty for the identity
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;

  // Parses a model file and checks every assumption that the library makes.
  static Result<SentencePieceModel> Read(std::string_view bytes);
  // Returns a model file with exactly the fields above.
  std::string Write() const;
};

// Returns the byte of a byte piece "<0xNN>", or -1 if `text` is not a byte piece.
int BytePieceValue(std::string_view text);

}  // namespace minisgl::text
