// A fake of cuBLASLt with the functions that the program calls. It computes on the host, so that
// the calls can be checked without a GPU.
//
// An algorithm is the number of tokens it was chosen for, and its place among those chosen. There
// is none for 13 outputs, and none passes the check for 77 tokens. Products of 77 tokens work only
// with the algorithm chosen for 77, products of 91 tokens with none. Tests can read the requested
// workspace and reduction.
//
// Products of e4m3 are those of the manual (cublasLtMatmul, "To use FP8 kernels" and "Scaling
// modes"): transposed A alone, sizes and addresses of 16 bytes, an output of 16 or 32 bits, vectors
// of scales for both matrices or blocks of 128 for at least one as vectors, and these on compute
// capability 9.0 and from version 12.9 on. Other types take no scales. What is not so is refused.
#include "fake_cublas_lt.h"

#include <cublasLt.h>

#include <algorithm>
#include <cstring>

#include "minisgl/tensor/dtype.h"

namespace {

struct Layout {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
};
struct Description {
  cublasOperation_t of_a = CUBLAS_OP_N;
  int32_t mode_a = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  int32_t mode_b = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  const float* scales_a = nullptr;
  const float* scales_b = nullptr;
};
struct Preference {
  uint64_t workspace_bytes;
  uint32_t reductions;
};

FakeCublasLtSeen g_seen;

Layout* AsLayout(cublasLtMatrixLayout_t layout) { return reinterpret_cast<Layout*>(layout); }

Description* AsDescription(cublasLtMatmulDesc_t desc) {
  return reinterpret_cast<Description*>(desc);
}

bool IsAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
uint64_t WidthOf(cudaDataType type) {
  return type == CUDA_R_8F_E4M3 ? 1 : type == CUDA_R_32F ? 4 : 2;
}

// What the library says of a product with these types and scales.
cublasStatus_t CheckScales(const Description& desc, const Layout& a, const Layout& b,
                           const Layout& d) {
  const bool is_e4m3 = a.type == CUDA_R_8F_E4M3 || b.type == CUDA_R_8F_E4M3;
  const bool has_scales = desc.scales_a != nullptr || desc.scales_b != nullptr ||
                          desc.mode_a != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ||
                          desc.mode_b != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  if (!is_e4m3) return has_scales ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
  if (a.type != b.type || d.type == CUDA_R_8F_E4M3 || desc.of_a != CUBLAS_OP_T) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  for (const Layout* const layout : {&a, &b, &d}) {
    const uint64_t width = WidthOf(layout->type);
    if (layout->rows * width % 16 != 0 || static_cast<uint64_t>(layout->ld) * width % 16 != 0) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  }
  const auto is = [&](int32_t mode_a, int32_t mode_b) {
    return desc.mode_a == mode_a && desc.mode_b == mode_b;
  };
  constexpr int32_t kRow = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
                    kBlock = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
                    kOuter = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
                    kScalar = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  if (is(kScalar, kScalar)) return CUBLAS_STATUS_SUCCESS;
  const bool has_blocks = is(kRow, kRow) || is(kRow, kBlock) || is(kBlock, kRow);
  if (!has_blocks && !is(kOuter, kOuter)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (g_seen.compute_capability != 90 || g_seen.version < 120'900) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (desc.scales_a == nullptr || desc.scales_b == nullptr || !IsAligned(desc.scales_a) ||
      !IsAligned(desc.scales_b)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (has_blocks && (d.rows % 4 != 0 || d.cols % 4 != 0)) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

// The scale of an element in column `col` of a matrix of `cols` columns, at place k of `inner`.
float ScaleOf(int32_t mode, const float* scales, uint64_t k, uint64_t inner, uint64_t col,
              uint64_t cols) {
  const uint64_t blocks = (inner + 127) / 128;
  switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
      return scales[col];
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
      return scales[k / 128 * cols + col];
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      return scales[col / 128 * ((blocks + 3) / 4 * 4) + k / 128];
    default:
      return scales == nullptr ? 1 : *scales;
  }
}

float Load(const void* matrix, const Layout& layout, uint64_t row, uint64_t col) {
  const size_t index = col * static_cast<size_t>(layout.ld) + row;
  if (layout.type == CUDA_R_32F) return static_cast<const float*>(matrix)[index];
  if (layout.type == CUDA_R_8F_E4M3) {
    return minisgl::E4M3ToFloat(static_cast<const uint8_t*>(matrix)[index]);
  }
  const uint16_t bits = static_cast<const uint16_t*>(matrix)[index];
  return layout.type == CUDA_R_16BF ? minisgl::Bf16ToFloat(bits) : minisgl::F16ToFloat(bits);
}

void Store(void* matrix, const Layout& layout, uint64_t row, uint64_t col, float value) {
  const size_t index = col * static_cast<size_t>(layout.ld) + row;
  if (layout.type == CUDA_R_32F) {
    static_cast<float*>(matrix)[index] = value;
  } else {
    static_cast<uint16_t*>(matrix)[index] =
        layout.type == CUDA_R_16BF ? minisgl::FloatToBf16(value) : minisgl::FloatToF16(value);
  }
}

}  // namespace

FakeCublasLtSeen* FakeCublasLt() { return &g_seen; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  ++g_seen.objects;
  *handle = reinterpret_cast<cublasLtHandle_t>(&g_seen);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  --g_seen.objects;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "some error of cuBLAS";
}

size_t cublasLtGetVersion() { return g_seen.version; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  ++g_seen.objects;
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new Description);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  --g_seen.objects;
  delete AsDescription(desc);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t num_bytes) {
  Description* const its = AsDescription(desc);
  const auto set = [&](auto* member) {
    if (num_bytes != sizeof(*member)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(member, value, num_bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(&its->of_a);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(&its->scales_a);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(&its->scales_b);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return g_seen.version < 120'900 ? CUBLAS_STATUS_INVALID_VALUE : set(&its->mode_a);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return g_seen.version < 120'900 ? CUBLAS_STATUS_INVALID_VALUE : set(&its->mode_b);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  if (ld < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  ++g_seen.objects;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, cols, ld});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  --g_seen.objects;
  delete AsLayout(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t num_bytes) {
  if (attribute != CUBLASLT_MATRIX_LAYOUT_COLS || num_bytes != sizeof(uint64_t)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(&AsLayout(layout)->cols, value, num_bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  ++g_seen.objects;
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference{});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  --g_seen.objects;
  delete reinterpret_cast<Preference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t num_bytes) {
  auto* const found = reinterpret_cast<Preference*>(preference);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    if (num_bytes != 8) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&found->workspace_bytes, value, 8);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (num_bytes != 4) return CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    std::memcpy(&found->reductions, value, 4);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int num_asked,
                                              cublasLtMatmulHeuristicResult_t found[], int* count) {
  ++g_seen.num_choices;
  if (g_seen.capturing) return CUBLAS_STATUS_INTERNAL_ERROR;
  const auto* const asked = reinterpret_cast<const Preference*>(preference);
  g_seen.workspace_bytes = asked->workspace_bytes;
  g_seen.reductions = asked->reductions;
  *count = 0;
  const cublasStatus_t scales =
      CheckScales(*AsDescription(desc), *AsLayout(a), *AsLayout(b), *AsLayout(d));
  if (scales != CUBLAS_STATUS_SUCCESS) return scales;
  if (AsLayout(c)->rows == 13) return CUBLAS_STATUS_SUCCESS;
  g_seen.num_asked = num_asked;
  *count = std::min(num_asked, g_seen.num_candidates);
  for (int i = 0; i < *count; ++i) {
    found[i].algo.data[0] = AsLayout(b)->cols;
    found[i].algo.data[1] = static_cast<uint64_t>(i);
    found[i].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* needs) {
  ++g_seen.num_checks;
  needs->workspaceSize = g_seen.needed_bytes;
  if (static_cast<int>(algorithm->data[1]) == g_seen.refused_candidate) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return AsLayout(b)->cols == 77 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t, cudaStream_t) {
  const Layout &la = *AsLayout(a_layout), &lb = *AsLayout(b_layout), &ld = *AsLayout(d_layout);
  const Description& its = *AsDescription(desc);
  const bool transposed = its.of_a == CUBLAS_OP_T;
  const uint64_t inner = transposed ? la.rows : la.cols, rows = transposed ? la.cols : la.rows;
  if (inner != lb.rows || rows != ld.rows || lb.cols != ld.cols || c != d ||
      *static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (const cublasStatus_t scales = CheckScales(its, la, lb, ld); scales != CUBLAS_STATUS_SUCCESS) {
    return scales;
  }
  const bool is_e4m3 = la.type == CUDA_R_8F_E4M3;
  if (is_e4m3 && (!IsAligned(a) || !IsAligned(b) || !IsAligned(d))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  g_seen.num_scaled += is_e4m3 ? 1 : 0;
  if (lb.cols == 91 || (lb.cols == 77 && algorithm->data[0] != 77)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (static_cast<int>(algorithm->data[1]) == g_seen.failing_candidate) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  g_seen.algorithm = algorithm->data[0];
  g_seen.candidate = algorithm->data[1];
  for (uint64_t row = 0; row < ld.rows; ++row) {
    for (uint64_t col = 0; col < ld.cols; ++col) {
      float sum = 0;
      for (uint64_t k = 0; k < inner; ++k) {
        float product =
            (transposed ? Load(a, la, k, row) : Load(a, la, row, k)) * Load(b, lb, k, col);
        if (is_e4m3) {
          product *= ScaleOf(its.mode_a, its.scales_a, k, inner, row, rows) *
                     ScaleOf(its.mode_b, its.scales_b, k, inner, col, lb.cols);
        }
        sum += product;
      }
      Store(d, ld, row, col, sum);
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}
