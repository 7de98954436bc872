// The launchers of the kernels: one for each operation, named Launch<Operation>. A launcher takes
// the operation's params (ops_params.h, device_ops.h: pointers to device memory), queues the kernel
// and returns its error; it does not repeat its caller's checks. A kernel's grid, shared memory and
// memory traffic are described in its .cu file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/coded_rows.h"
#include "kernels/launch.h"
#include "minisgl/device_ops.h"

namespace minisgl::cuda {

// elementwise.cu
// `table`: [V, D] of table_dtype.
CudaError LaunchEmbedding(const LaunchContext& context, const EmbeddingParams& params,
                          const void* table, DType table_dtype);
// width at most kNormWidthMax
inline constexpr int64_t kNormWidthMax = 16384;
CudaError LaunchNorm(const LaunchContext& context, const NormParams& params);
CudaError LaunchMeanSquares(const LaunchContext& context, const MeanSquaresParams& params);
CudaError LaunchActivate(const LaunchContext& context, const ActivateParams& params);
CudaError LaunchSoftcap(const LaunchContext& context, const SoftcapParams& params);
CudaError LaunchGatherRows(const LaunchContext& context, const GatherRowsParams& params);
// out[t, o] += bias[o]. Tokens are `out_stride` elements apart, or `width` if it is 0.
CudaError LaunchAddBias(const LaunchContext& context, ActivationPtr out, const float* bias,
                        int64_t num_tokens, int64_t width, int64_t out_stride = 0);
CudaError LaunchPlaceRows(const LaunchContext& context, const PlaceRowsParams& params);
CudaError LaunchMixRotary(const LaunchContext& context, const MixRotaryParams& params);
CudaError LaunchMixRows(const LaunchContext& context, const MixRowsParams& params);
CudaError LaunchClamp(const LaunchContext& context, const ClampParams& params);

// coded_rows.cu
// Writes the weights of rows [first_row, first_row + num_rows) as `dtype` to out[num_rows, num_in].
CudaError LaunchExpandCodes(const LaunchContext& context, const CodedRows& rows, int64_t first_row,
                            int64_t num_rows, DType dtype, void* out);
// Copies the lines of rows of type e4m3, each with groups that are neighbours, to
// out[num_rows, 64 * lines].
CudaError LaunchPlainLines(const LaunchContext& context, const CodedRows& rows, int64_t first_row,
                           int64_t num_rows, uint8_t* out);
// The bits of LaunchEmbedding with the table expanded to `dtype`.
CudaError LaunchCodedEmbedding(const LaunchContext& context, const EmbeddingParams& params,
                               const CodedRows& rows, DType dtype);

// rope_kv_write.cu
CudaError LaunchRopeKvWrite(const LaunchContext& context, const RopeKvWriteParams& params);

// segment_attention.cu. Reads the segments before it returns.
// head_dim at most kSegmentHeadDimMax
inline constexpr int32_t kSegmentHeadDimMax = 128;
CudaError LaunchSegmentAttention(const LaunchContext& context,
                                 const SegmentAttentionParams& params);

// step.cu
CudaError LaunchApplyPlanWrites(const LaunchContext& context, const PlanWritesParams& params);
CudaError LaunchPrepareTokens(const LaunchContext& context, const PrepareTokensParams& params);
CudaError LaunchAcceptTokens(const LaunchContext& context, const AcceptTokensParams& params);
// Fills num_words words with `value`: the probe's test kernel.
CudaError LaunchFill(const LaunchContext& context, uint32_t* words, uint32_t value,
                     int64_t num_words);
// Does nothing for about that time, at most 1,000,000 ns: the pause of a KernelTimer.
CudaError LaunchPause(const LaunchContext& context, uint32_t nanoseconds);

// drafts.cu
CudaError LaunchKeepStates(const LaunchContext& context, const KeepStatesParams& params);
CudaError LaunchMapTokens(const LaunchContext& context, const MapTokensParams& params);

// gemv.cu: out = x * weight^T for few rows; weight [out, in] of x's dtype. The order of an output
// element's sum does not depend on the number of rows. Parts as in FusedLinearParams, with the bits
// of separate kernels; what lies between them is not written.
inline constexpr int64_t kGemvTokensMax = 16;
struct ProductParams {
  LinearParams linear;
  const NormParams* norm = nullptr;            // null, or GemvTakesNorm
  const ActivateParams* activation = nullptr;  // null, or ProductTakesActivation
  float* residual = nullptr;
  float residual_scale = 1;
};
bool GemvTakesNorm(const LaunchContext& context, const Matrix& weight, const NormParams& norm);
bool ProductTakesActivation(const ActivateParams& activation);
CudaError LaunchGemv(const LaunchContext& context, const ProductParams& params, const void* weight);

// gemv_codes.cu: rows [first_row, first_row + num_rows) of such a product, with the weights of
// `rows`; the bits of LaunchGemv with the expanded matrix. No norm, and with some of the rows no
// activation.
CudaError LaunchGemvCodes(const LaunchContext& context, const ProductParams& params,
                          const CodedRows& rows, int64_t first_row, int64_t num_rows);
// code_tiles.cu: the same rows of a product of 17 to kCodeTileTokensMax tokens. The order of an
// output element's sum does not depend on their number. REQUIRES lines of neighbours.
inline constexpr int64_t kCodeTileTokensMax = 511;
CudaError LaunchCodeTiles(const LaunchContext& context, const LinearParams& params,
                          const CodedRows& rows, int64_t first_row, int64_t num_rows);
// The order of codes with which that product reads whole lines.
CodeOrder GemvCodeOrder(const LaunchContext& context, const Matrix& weight, RowCodes kind);

// experts.cu
// num_experts at most kExpertsMax; num_groups at most kExpertGroupsMax, if not all are chosen
inline constexpr int32_t kExpertsMax = 512;
inline constexpr int32_t kExpertGroupsMax = 32;
CudaError LaunchRoute(const LaunchContext& context, const RouteParams& params);
CudaError LaunchCombineExperts(const LaunchContext& context, const CombineExpertsParams& params);

// expert_linear.cu. The workspace holds the lists of one product at a time.
struct ExpertWorkspace {
  void* memory = nullptr;  // ExpertWorkspaceBytes(limits)
  DeviceLimits limits;
};
size_t ExpertWorkspaceBytes(const DeviceLimits& limits);  // 0 if there are no experts
// `weights`: [X, out, in] of x's dtype. The order of an output element's sum does not depend on the
// other tokens.
CudaError LaunchExpertLinear(const LaunchContext& context, const ExpertLinearParams& params,
                             const void* weights, const ExpertWorkspace& workspace);
// expert_codes.cu: the same, and the same bits, with the weights of `rows`, [X * out, in].
CudaError LaunchExpertCodes(const LaunchContext& context, const ExpertLinearParams& params,
                            const CodedRows& rows, const ExpertWorkspace& workspace);

// head_linear.cu. `weights`: [H, out, in] of x's dtype. The order of an output element's sum does
// not depend on the other tokens.
CudaError LaunchHeadLinear(const LaunchContext& context, const HeadLinearParams& params,
                           const void* weights);

// low_rank.cu. An element's sums are in an order that does not depend on other rows.
CudaError LaunchSlotLowRank(const LaunchContext& context, const SlotLowRankParams& params);
CudaError LaunchSlotEmbeddings(const LaunchContext& context, const SlotEmbeddingParams& params);

// short_conv.cu, recurrence.cu, recurrence_chunk.cu. Segments are a device's
// (StateSegments::of_row).
CudaError LaunchShortConv(const LaunchContext& context, const ShortConvParams& params);
// key_dim at most kStateKeysMax; decay and gain are f32. A row with a span of 16 tokens or more is
// computed by chunks of tokens, on the tensor cores, whose results differ in the last bits from
// those token by token; which of both depends on the row's spans only. `deterministic`: all rows
// token by token, with the same bits for every cut of a sequence.
inline constexpr int32_t kStateKeysMax = 256;
CudaError LaunchRecurrence(const LaunchContext& context, const RecurrenceParams& params,
                           bool deterministic);

// rank_exchange.cu. Every rank launches the same calls in the same order, with equal sizes; kernels
// wait for the other ranks' kernels. RankExchange: rank_exchange.h. A wait that times out sets the
// alarm, and the results are undefined.
struct RankExchange;
CudaError LaunchAllReduce(const LaunchContext& context, const AllReduceParams& params,
                          const RankExchange& ranks);
// True if one kernel sums and normalises: elements of 16 bits, at most 8,192 a token, in one shot.
bool SumTakesNorm(const AllReduceNormParams& params, const RankExchange& ranks);
CudaError LaunchAllReduceNorm(const LaunchContext& context, const AllReduceNormParams& params,
                              const RankExchange& ranks);
CudaError LaunchGatherColumns(const LaunchContext& context, const GatherColumnsParams& params,
                              const RankExchange& ranks);

// sample.cu
// vocab_size at most kSampleVocabMax
inline constexpr int64_t kSampleVocabMax = 524288;
CudaError LaunchSample(const LaunchContext& context, const DeviceSampleParams& params);

// attention.cu, attention_plan.cu, attention_decode*.cu, attention_extend*.cu,
// attention_pictures*.cu, attention_wide*.cu. The plan kernel writes the
// workspace, and the kernels of every layer read it. Its address stays the same between steps, and
// its counters are zero before the first step.
struct AttentionWorkspace {
  void* memory = nullptr;  // AttentionWorkspaceBytes(limits, num_multiprocessors), zeroed once
  DeviceLimits limits;
  // As many as the device has. If it has more, blocks of the extend kernel may wait for others to
  // end.
  int num_multiprocessors = 0;
};
// True if a kernel serves keys of head_dim and values of value_dim elements. Keys and values of 64,
// 80, 96, 128 or 256 elements each have kernels of their own. The kernel for wide heads serves the
// other sizes in multiples of 16 bytes: up to 512 elements, or values in keys of up to 576.
bool HasAttention(int32_t head_dim, int32_t value_dim, bool values_in_keys);
// The same of attention with AttentionParams::distance_bias.
bool HasDistances(int32_t head_dim, int32_t value_dim);
size_t AttentionWorkspaceBytes(const DeviceLimits& limits, int num_multiprocessors);
CudaError LaunchPlanAttention(const LaunchContext& context, const AttentionPlanParams& params,
                              const AttentionWorkspace& workspace, bool deterministic);
// Rows of one token use the decode kernel, the others the extend kernel. `deterministic`: all rows
// use kernels in which a token's result does not depend on the number of tokens of its row. The
// plan must be of the same mode. `early`: the kernel launched just before is LaunchRopeKvWrite's,
// so that all other inputs are complete when this kernel begins.
CudaError LaunchAttention(const LaunchContext& context, const AttentionParams& params,
                          const AttentionWorkspace& workspace, bool deterministic,
                          bool early = false);

}  // namespace minisgl::cuda
