// See cublas_lt.h. The toolkit's header declares the types; nothing of the library is linked.
//
// cuBLASLt is column-major. Row-major out[T, N] = x[T, K] * weight[N, K]^T is column-major
// out'[N, T] = weight'^T * x' of weight'[K, N] and x'[K, T], the same memory read the other way.
#include "cublas_lt.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "algorithm_store.h"
#include "cuda_error.h"
#include "minisgl/base/library_function.h"
#include "minisgl/base/setting.h"

namespace minisgl::cuda {
namespace {

// In deterministic mode, the number of tokens for which a matrix's only algorithm is chosen: large
// enough to keep the tensor cores busy, small enough to suit a decode batch.
constexpr int64_t kDeterministicTokens = 128;
// Number of algorithms requested if the first one may not be taken: in deterministic mode the first
// usable one is, otherwise, for few tokens, the fastest.
constexpr int kCandidates = 8;
// Products of at most so many tokens, which graphs contain, are timed. For more tokens the
// library's estimates are good, and timing takes long.
constexpr int64_t kTimedTokensMax = 512;
// Time for it in all. A model has about 200 products of few tokens with 8 candidates, of 4 runs of
// 10 to 50 microseconds each.
constexpr double kTimingBudgetMs = 300;
// An algorithm serves a bucket: the numbers of tokens that round up to the same multiple of a step.
// Up to kSmallTokens the step is the one between batch sizes of decode graphs, so that each size
// has an algorithm of its own: 136 tokens with a tile for 256 would take twice the products. Above,
// a remainder of a tile matters less.
constexpr int64_t kSmallTokens = 256;
constexpr int64_t kSmallStep = 8;
constexpr int64_t kLargeStep = 64;

// Attributes and modes of scales, which headers before 12.9 do not have.
constexpr auto kScaleModeOfA = static_cast<cublasLtMatmulDescAttributes_t>(31);
constexpr auto kScaleModeOfB = static_cast<cublasLtMatmulDescAttributes_t>(32);
constexpr int32_t kOuterVectors = 3, kVectorsOf128 = 4, kBlocksOf128 = 5;
#if CUBLAS_VERSION >= 120900
static_assert(kScaleModeOfA == CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
static_assert(kScaleModeOfB == CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
static_assert(kOuterVectors == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
static_assert(kVectorsOf128 == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
static_assert(kBlocksOf128 == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
#endif
constexpr size_t kScalesSince = 120'900;  // version of the library

struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

bool FindAll(void* library, Functions* f) {
  return FindFunction(library, "cublasLtCreate", &f->create) &&
         FindFunction(library, "cublasLtDestroy", &f->destroy) &&
         FindFunction(library, "cublasLtGetStatusString", &f->status_string) &&
         FindFunction(library, "cublasLtGetVersion", &f->version) &&
         FindFunction(library, "cublasLtMatmul", &f->matmul) &&
         FindFunction(library, "cublasLtMatmulAlgoCheck", &f->algo_check) &&
         FindFunction(library, "cublasLtMatmulAlgoGetHeuristic", &f->get_heuristic) &&
         FindFunction(library, "cublasLtMatmulDescCreate", &f->desc_create) &&
         FindFunction(library, "cublasLtMatmulDescDestroy", &f->desc_destroy) &&
         FindFunction(library, "cublasLtMatmulDescSetAttribute", &f->desc_set) &&
         FindFunction(library, "cublasLtMatrixLayoutCreate", &f->layout_create) &&
         FindFunction(library, "cublasLtMatrixLayoutDestroy", &f->layout_destroy) &&
         FindFunction(library, "cublasLtMatrixLayoutSetAttribute", &f->layout_set) &&
         FindFunction(library, "cublasLtMatmulPreferenceCreate", &f->preference_create) &&
         FindFunction(library, "cublasLtMatmulPreferenceDestroy", &f->preference_destroy) &&
         FindFunction(library, "cublasLtMatmulPreferenceSetAttribute", &f->preference_set);
}

Result<LibraryNames> NamesFor(CudaApi* api) {
  int driver_version = 0;
  if (const CudaError error = api->DriverVersion(&driver_version); error != kCudaSuccess) {
    return CudaStatus(api, error, "cudaDriverGetVersion", "cuBLAS");
  }
  return CublasLtNames(driver_version, PlacesOfEnvironment());
}

// Returns the functions of the first name that loads. A loaded library is never unloaded: its
// threads and its kernels' code outlive their users.
Result<Functions> LoadFunctions(const LibraryNames& library) {
  std::string reasons;
  for (const std::string& name : library.names) {
    void* const loaded = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    Functions functions;
    if (loaded != nullptr && FindAll(loaded, &functions)) return functions;
    const char* const reason = dlerror();
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", reason ? reason : name);
  }
  return MakeStatus(StatusCode::kUnavailable,
                    "cuBLAS cannot be loaded: {}; searched after the loader's folders: {}; install "
                    "cuBLAS (of the CUDA toolkit, or Python's package nvidia-cublas), or put the "
                    "folder that has it into LD_LIBRARY_PATH",
                    reasons, library.folders);
}

cudaDataType DataType(DType dtype) {
  if (dtype == DType::kF32) return CUDA_R_32F;
  if (dtype == DType::kE4M3) return CUDA_R_8F_E4M3;
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

int64_t Bucket(int64_t num_tokens) {
  const int64_t step = num_tokens <= kSmallTokens ? kSmallStep : kLargeStep;
  return (num_tokens + step - 1) / step * step;
}

// True for the errors of a product whose algorithm does not support its shape.
bool RefusesShape(cublasStatus_t error) {
  return error == CUBLAS_STATUS_NOT_SUPPORTED || error == CUBLAS_STATUS_INVALID_VALUE;
}

std::string ShapeText(const MatmulShape& shape) {
  return fmt::format("[{}, {}] x [{}, {}]^T, {} to {}", shape.num_tokens, shape.num_in,
                     shape.num_out, shape.num_in, DTypeName(shape.dtype),
                     DTypeName(shape.out_dtype));
}

// The algorithm's bytes may be kept for the same version of the library, as its manual says.
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(AlgorithmStore::Bytes));

AlgorithmStore::Bytes BytesOf(const cublasLtMatmulAlgo_t& algorithm) {
  AlgorithmStore::Bytes bytes;
  std::memcpy(bytes.data(), &algorithm, sizeof(algorithm));
  return bytes;
}

using PlanKey = std::tuple<int64_t, int64_t, int64_t, int64_t, DType, DType, MatmulScales>;

PlanKey KeyOf(const MatmulShape& shape) {
  return {shape.num_tokens, shape.num_out,   shape.num_in, shape.row_stride(),
          shape.dtype,      shape.out_dtype, shape.scales};
}

// Layouts and algorithm for the products of a bucket, or of one number of tokens.
struct Plan {
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, out = nullptr;
  MatmulShape chosen_for;
  cublasLtMatmulAlgo_t algorithm = {};
  // Those to choose among by their time at the first product; empty: `algorithm` stays.
  std::vector<cublasLtMatmulAlgo_t> candidates;
  std::unordered_set<int64_t> checked;  // deterministic: numbers of tokens that it supports
};

class CublasLt : public MatmulLibrary {
 public:
  // `timer`: null if algorithms are not timed.
  CublasLt(const Functions& functions, const MatmulSetup& setup, std::unique_ptr<WorkTimer> timer)
      : lt_(functions),
        workspace_(setup.workspace),
        workspace_bytes_(setup.workspace_bytes),
        deterministic_(setup.deterministic),
        has_scales_(setup.compute_major == 9 && setup.compute_minor == 0 &&
                    functions.version() >= kScalesSince),
        timer_(std::move(timer)),
        chooser_(timer_.get(), kTimingBudgetMs) {}
  ~CublasLt() override;

  // Called once, before any other function.
  Status Open();
  // Keeps timed choices in `folder`. `identity` names the device and the libraries that they hold
  // for.
  void KeepChoices(const std::string& folder, const std::string& identity) {
    store_.emplace(folder, fmt::format("{}; cuBLASLt {}", identity, lt_.version()));
  }

  Status Prepare(const MatmulShape& shape) override { return FindPlan(shape).status(); }
  Status Matmul(const MatmulShape& shape, const void* x, const void* weight, void* out,
                CudaStream stream) override {
    return Run(shape, {.x = x, .weight = weight}, out, stream);
  }
  Status ScaledMatmul(const MatmulShape& shape, const ScaledOperands& in, void* out,
                      CudaStream stream) override;
  bool HasScaledMatmul() const override { return has_scales_; }
  void SetCapturing(bool capturing) override { capturing_ = capturing; }

 private:
  // A product by the description of its scales, whose pointers are set.
  Status Run(const MatmulShape& shape, const ScaledOperands& in, void* out, CudaStream stream);
  Status MakeDescription(MatmulScales scales);
  Status SetScales(MatmulScales scales, const float* of_weight, const float* of_x);
  cublasLtMatmulDesc_t Description(const MatmulShape& shape) const {
    return descriptions_[static_cast<size_t>(shape.scales)];
  }
  Result<Plan*> FindPlan(const MatmulShape& shape);
  // The plan for `chosen_for` of `plans`, made if missing.
  Result<Plan*> FindOrMake(const MatmulShape& chosen_for, std::map<PlanKey, Plan>* plans);
  Status MakeLayouts(const MatmulShape& shape, Plan* plan);
  Status SetNumTokens(int64_t num_tokens, Plan* plan);
  Status ChooseAlgorithm(const MatmulShape& shape, bool is_bucket, Plan* plan);
  // Sets the algorithm that an earlier start chose. False if there is none, or it is refused.
  bool TakeKept(const MatmulShape& shape, Plan* plan);
  // True if the library can compute products of the plan's layouts with its algorithm.
  bool IsUsable(const Plan& plan, cublasStatus_t* error);
  Status CheckServes(const MatmulShape& shape, Plan* plan);
  Status SetPreferences(cublasLtMatmulPreference_t preference);
  void DestroyLayouts(const Plan& plan);
  Status Error(cublasStatus_t error, std::string_view what) const;

  const Functions lt_;
  void* const workspace_;
  const size_t workspace_bytes_;
  const bool deterministic_;
  const bool has_scales_;
  const std::unique_ptr<WorkTimer> timer_;
  WayChooser chooser_;
  std::optional<AlgorithmStore> store_;
  cublasLtHandle_t handle_ = nullptr;
  std::array<cublasLtMatmulDesc_t, 3> descriptions_ = {};  // by MatmulScales
  bool capturing_ = false;
  std::map<PlanKey, Plan> plans_;  // by bucket
  // By number of tokens: of the shapes that their bucket's algorithm does not support.
  std::map<PlanKey, Plan> exact_plans_;
};

CublasLt::~CublasLt() {
  for (const auto* const plans : {&plans_, &exact_plans_}) {
    for (const auto& [key, plan] : *plans) DestroyLayouts(plan);
  }
  for (const cublasLtMatmulDesc_t description : descriptions_) {
    if (description != nullptr) lt_.desc_destroy(description);
  }
  if (handle_ != nullptr) lt_.destroy(handle_);
}

Status CublasLt::Error(cublasStatus_t error, std::string_view what) const {
  if (error == CUBLAS_STATUS_SUCCESS) return Status();
  StatusCode code = StatusCode::kInternal;
  if (error == CUBLAS_STATUS_ALLOC_FAILED) code = StatusCode::kOutOfMemory;
  if (error == CUBLAS_STATUS_NOT_INITIALIZED || error == CUBLAS_STATUS_ARCH_MISMATCH) {
    code = StatusCode::kUnavailable;
  }
  return MakeStatus(code, "cuBLAS, {}: {}", what, lt_.status_string(error));
}

Status CublasLt::Open() {
  MINISGL_RETURN_IF_ERROR(Error(lt_.create(&handle_), "cublasLtCreate"));
  MINISGL_RETURN_IF_ERROR(MakeDescription(MatmulScales::kNone));
  if (!has_scales_) return Status();
  MINISGL_RETURN_IF_ERROR(MakeDescription(MatmulScales::kVectors));
  return MakeDescription(MatmulScales::kBlocks);
}

// Sums of e4m3 are promoted to f32 as the library does by default, not accumulated fast.
Status CublasLt::MakeDescription(MatmulScales scales) {
  cublasLtMatmulDesc_t& description = descriptions_[static_cast<size_t>(scales)];
  MINISGL_RETURN_IF_ERROR(
      Error(lt_.desc_create(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product"));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  MINISGL_RETURN_IF_ERROR(
      Error(lt_.desc_set(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
            "a transposed product"));
  if (scales == MatmulScales::kNone) return Status();
  const bool is_vectors = scales == MatmulScales::kVectors;
  const int32_t of_weight = is_vectors ? kOuterVectors : kBlocksOf128;
  const int32_t of_x = is_vectors ? kOuterVectors : kVectorsOf128;
  MINISGL_RETURN_IF_ERROR(
      Error(lt_.desc_set(description, kScaleModeOfA, &of_weight, sizeof(of_weight)), "scales"));
  MINISGL_RETURN_IF_ERROR(
      Error(lt_.desc_set(description, kScaleModeOfB, &of_x, sizeof(of_x)), "scales"));
  // An algorithm may be chosen before a product has scales: any aligned address stands for them.
  const auto* const anything = static_cast<const float*>(workspace_);
  return SetScales(scales, anything, anything);
}

Status CublasLt::SetScales(MatmulScales scales, const float* of_weight, const float* of_x) {
  const cublasLtMatmulDesc_t description = descriptions_[static_cast<size_t>(scales)];
  const void* const a = of_weight;
  const void* const b = of_x;
  MINISGL_RETURN_IF_ERROR(
      Error(lt_.desc_set(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &a, sizeof(a)),
            "scales of weights"));
  return Error(lt_.desc_set(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &b, sizeof(b)),
               "scales of inputs");
}

void CublasLt::DestroyLayouts(const Plan& plan) {
  for (const cublasLtMatrixLayout_t layout : {plan.weight, plan.x, plan.out}) {
    if (layout != nullptr) lt_.layout_destroy(layout);
  }
}

Status CublasLt::MakeLayouts(const MatmulShape& shape, Plan* plan) {
  const auto n = static_cast<uint64_t>(shape.num_out), k = static_cast<uint64_t>(shape.num_in);
  const auto t = static_cast<uint64_t>(shape.num_tokens);
  const cudaDataType in_type = DataType(shape.dtype), out_type = DataType(shape.out_dtype);
  MINISGL_RETURN_IF_ERROR(
      Error(lt_.layout_create(&plan->weight, in_type, k, n, shape.num_in), "a layout"));
  MINISGL_RETURN_IF_ERROR(
      Error(lt_.layout_create(&plan->x, in_type, k, t, shape.num_in), "a layout"));
  return Error(lt_.layout_create(&plan->out, out_type, n, t, shape.row_stride()), "a layout");
}

Status CublasLt::SetNumTokens(int64_t num_tokens, Plan* plan) {
  const auto columns = static_cast<uint64_t>(num_tokens);
  for (const cublasLtMatrixLayout_t layout : {plan->x, plan->out}) {
    MINISGL_RETURN_IF_ERROR(
        Error(lt_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof(columns)),
              "a number of columns"));
  }
  return Status();
}

// Sums that are split over blocks are added in f32. In deterministic mode they are not split: an
// element is one loop over K, whatever the number of tokens.
Status CublasLt::SetPreferences(cublasLtMatmulPreference_t preference) {
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return Error(lt_.preference_set(preference, attribute, &value, sizeof(value)), "a preference");
  };
  const uint64_t workspace_bytes = deterministic_ ? 0 : workspace_bytes_;
  MINISGL_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes));
  const uint32_t reductions =
      deterministic_ ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  MINISGL_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
  // Activations are parts of one buffer, aligned to 16 bytes, as the widest load requires.
  constexpr uint32_t kAlignment = 16;
  MINISGL_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAlignment));
  MINISGL_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAlignment));
  MINISGL_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment));
  return set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment);
}

Status CublasLt::ChooseAlgorithm(const MatmulShape& shape, bool is_bucket, Plan* plan) {
  const bool is_timed = timer_ != nullptr && shape.num_tokens <= kTimedTokensMax;
  if (is_timed && is_bucket && TakeKept(shape, plan)) return Status();
  cublasLtMatmulPreference_t preference = nullptr;
  MINISGL_RETURN_IF_ERROR(Error(lt_.preference_create(&preference), "a preference"));
  cublasLtMatmulHeuristicResult_t found[kCandidates] = {};
  int num_found = 0;
  Status status = SetPreferences(preference);
  if (status.ok()) {
    status = Error(lt_.get_heuristic(
                       handle_, Description(shape), plan->weight, plan->x, plan->out, plan->out,
                       preference, deterministic_ || is_timed ? kCandidates : 1, found, &num_found),
                   ShapeText(shape));
  }
  lt_.preference_destroy(preference);
  MINISGL_RETURN_IF_ERROR(status);
  for (const auto& candidate : std::span(found, static_cast<size_t>(num_found))) {
    if (candidate.state == CUBLAS_STATUS_SUCCESS) plan->candidates.push_back(candidate.algo);
  }
  if (!plan->candidates.empty()) {
    plan->algorithm = plan->candidates[0];
    if (!is_timed || plan->candidates.size() == 1) plan->candidates.clear();
    return Status();
  }
  return MakeStatus(StatusCode::kInternal, "cuBLAS has no algorithm for {}{}", ShapeText(shape),
                    deterministic_ ? fmt::format(" that is deterministic; leave out {}",
                                                 SettingName(Setting::kDeterministic))
                    : shape.scales != MatmulScales::kNone ? "; leave out w8a8"
                                                          : "");
}

Result<Plan*> CublasLt::FindOrMake(const MatmulShape& chosen_for, std::map<PlanKey, Plan>* plans) {
  const auto found = plans->find(KeyOf(chosen_for));
  if (found != plans->end()) return &found->second;
  if (capturing_) {
    return MakeStatus(StatusCode::kInternal,
                      "cuBLAS was not asked for {} before a capture, and cannot be during one",
                      ShapeText(chosen_for));
  }
  Plan plan;
  plan.chosen_for = chosen_for;
  Status status = MakeLayouts(chosen_for, &plan);
  if (status.ok()) status = ChooseAlgorithm(chosen_for, plans == &plans_, &plan);
  if (!status.ok()) {
    DestroyLayouts(plan);
    return status;
  }
  return &plans->emplace(KeyOf(chosen_for), std::move(plan)).first->second;
}

Result<Plan*> CublasLt::FindPlan(const MatmulShape& shape) {
  if (const auto exact = exact_plans_.find(KeyOf(shape)); exact != exact_plans_.end()) {
    return &exact->second;
  }
  MatmulShape bucket = shape;
  bucket.num_tokens = deterministic_ ? kDeterministicTokens : Bucket(shape.num_tokens);
  MINISGL_ASSIGN_OR_RETURN(Plan* const plan, FindOrMake(bucket, &plans_));
  MINISGL_RETURN_IF_ERROR(SetNumTokens(shape.num_tokens, plan));
  if (deterministic_) MINISGL_RETURN_IF_ERROR(CheckServes(shape, plan));
  return plan;
}

bool CublasLt::IsUsable(const Plan& plan, cublasStatus_t* error) {
  cublasLtMatmulHeuristicResult_t needs = {};
  *error = lt_.algo_check(handle_, Description(plan.chosen_for), plan.weight, plan.x, plan.out,
                          plan.out, &plan.algorithm, &needs);
  return *error == CUBLAS_STATUS_SUCCESS && needs.workspaceSize <= workspace_bytes_;
}

bool CublasLt::TakeKept(const MatmulShape& shape, Plan* plan) {
  const AlgorithmStore::Bytes* const kept = store_ ? store_->Find(shape) : nullptr;
  if (kept == nullptr) return false;
  std::memcpy(&plan->algorithm, kept->data(), kept->size());
  cublasStatus_t error = CUBLAS_STATUS_SUCCESS;
  return IsUsable(*plan, &error);
}

Status CublasLt::CheckServes(const MatmulShape& shape, Plan* plan) {
  if (plan->checked.contains(shape.num_tokens)) return Status();
  cublasStatus_t error = CUBLAS_STATUS_SUCCESS;
  if (!IsUsable(*plan, &error)) {
    return MakeStatus(
        StatusCode::kInternal,
        "cuBLAS cannot compute {} with the algorithm for {} tokens ({}); leave out {}",
        ShapeText(shape), kDeterministicTokens, lt_.status_string(error),
        SettingName(Setting::kDeterministic));
  }
  plan->checked.insert(shape.num_tokens);
  return Status();
}

Status CublasLt::ScaledMatmul(const MatmulShape& shape, const ScaledOperands& in, void* out,
                              CudaStream stream) {
  MINISGL_CHECK(has_scales_ && shape.scales != MatmulScales::kNone, "a product without scales");
  MINISGL_RETURN_IF_ERROR(SetScales(shape.scales, in.weight_scales, in.x_scales));
  return Run(shape, in, out, stream);
}

Status CublasLt::Run(const MatmulShape& shape, const ScaledOperands& in, void* out,
                     CudaStream stream) {
  const auto queue_with = [&](const Plan& plan, const cublasLtMatmulAlgo_t& algorithm) {
    const float one = 1, zero = 0;
    return lt_.matmul(handle_, Description(shape), &one, in.weight, plan.weight, in.x, plan.x,
                      &zero, out, plan.out, out, plan.out, &algorithm, workspace_, workspace_bytes_,
                      reinterpret_cast<cudaStream_t>(stream));
  };
  const auto queue = [&](Plan& plan) {
    if (!plan.candidates.empty() && !capturing_) {
      const std::vector<cublasLtMatmulAlgo_t> candidates = std::exchange(plan.candidates, {});
      const WayChooser::Choice choice =
          chooser_.Choose(static_cast<int>(candidates.size()), stream, [&](int way) {
            return queue_with(plan, candidates[static_cast<size_t>(way)]) == CUBLAS_STATUS_SUCCESS;
          });
      plan.algorithm = candidates[static_cast<size_t>(choice.way)];
      const int64_t chosen_for = plan.chosen_for.num_tokens;
      if (choice.is_timed && store_ && chosen_for == Bucket(chosen_for)) {
        store_->Add(plan.chosen_for, BytesOf(plan.algorithm));
      }
    }
    return queue_with(plan, plan.algorithm);
  };
  MINISGL_ASSIGN_OR_RETURN(Plan * plan, FindPlan(shape));
  cublasStatus_t error = queue(*plan);
  if (RefusesShape(error) && !deterministic_ && !capturing_ &&
      !exact_plans_.contains(KeyOf(shape))) {
    MINISGL_ASSIGN_OR_RETURN(plan, FindOrMake(shape, &exact_plans_));
    error = queue(*plan);
  }
  return Error(error, ShapeText(shape));
}

}  // namespace

// Versions 12 and 13 have the functions used here, with the same types.
Result<LibraryNames> CublasLtNames(int driver_version, const SearchPlaces& places) {
  std::vector<std::string> sonames;
  for (const int major : UsableMajors(driver_version, CUBLAS_VER_MAJOR)) {
    sonames.push_back(fmt::format("libcublasLt.so.{}", major));
  }
  if (sonames.empty()) {
    return MakeStatus(StatusCode::kUnavailable,
                      "cuBLAS cannot be loaded: the NVIDIA driver supports CUDA {}.{}, and cuBLAS "
                      "12 is the first version used here; update the driver",
                      driver_version / 1000, driver_version % 1000 / 10);
  }
  return FindLibrary(places, sonames);
}

Status FindCublasLt(CudaApi* api) {
  MINISGL_ASSIGN_OR_RETURN(const LibraryNames library, NamesFor(api));
  return LoadFunctions(library).status();
}

Result<std::unique_ptr<MatmulLibrary>> LoadCublasLtOf(const LibraryNames& library,
                                                      const MatmulSetup& setup,
                                                      std::unique_ptr<WorkTimer> timer) {
  MINISGL_ASSIGN_OR_RETURN(const Functions functions, LoadFunctions(library));
  const bool is_timed = setup.times_algorithms && !setup.deterministic;
  if (is_timed && timer == nullptr) {
    timer = MakeWorkTimer(setup.api, setup.workspace, setup.workspace_bytes);
  }
  auto made = std::make_unique<CublasLt>(functions, setup, is_timed ? std::move(timer) : nullptr);
  MINISGL_RETURN_IF_ERROR(made->Open());
  if (is_timed && !setup.cache_folder.empty()) {
    made->KeepChoices(setup.cache_folder, setup.device);
  }
  return std::unique_ptr<MatmulLibrary>(std::move(made));
}

Result<std::unique_ptr<MatmulLibrary>> LoadCublasLt(const MatmulSetup& setup) {
  MINISGL_ASSIGN_OR_RETURN(const LibraryNames library, NamesFor(setup.api));
  int driver_version = 0;
  static_cast<void>(setup.api->DriverVersion(&driver_version));
  MatmulSetup with_driver = setup;
  with_driver.device += fmt::format(", driver {}", driver_version);
  return LoadCublasLtOf(library, with_driver);
}

}  // namespace minisgl::cuda
