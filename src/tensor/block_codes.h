// Codes, steps and scales of blocks whose numbers are rows of a codebook (block_format.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace minisgl::tensor {

inline int Byte(const std::byte* at) { return std::to_integer<int>(*at); }

// BlockCodes::read
void CodesOfIq1S(const std::byte* block, uint8_t* codes);
void CodesOfIq1M(const std::byte* block, uint8_t* codes);
void CodesOfIq2Xxs(const std::byte* block, uint8_t* codes);
void CodesOfIq2Xs(const std::byte* block, uint8_t* codes);
void CodesOfIq2S(const std::byte* block, uint8_t* codes);
void CodesOfIq3Xxs(const std::byte* block, uint8_t* codes);
void CodesOfIq3S(const std::byte* block, uint8_t* codes);

// BlockCodes::read_steps
void StepsOfIq1S(const std::byte* block, int8_t* scales, int8_t* offsets);
void StepsOfIq1M(const std::byte* block, int8_t* scales, int8_t* offsets);
void StepsOfIq2Xxs(const std::byte* block, int8_t* scales, int8_t* offsets);
void StepsOfIq2Xs(const std::byte* block, int8_t* scales, int8_t* offsets);
void StepsOfIq2S(const std::byte* block, int8_t* scales, int8_t* offsets);
void StepsOfIq3Xxs(const std::byte* block, int8_t* scales, int8_t* offsets);
void StepsOfIq3S(const std::byte* block, int8_t* scales, int8_t* offsets);

// BlockFormat::read_scale and is_finite
float ScaleOfIq1M(const std::byte* block);
bool IsFiniteIq1M(const std::byte* block);

}  // namespace minisgl::tensor
