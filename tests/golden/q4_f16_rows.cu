// decode.q4_0-f16.d64.g1.q1.rows.f16-f32.sm_80
// ======== the plan ========
namespace kv {

// K as q4_0: 4.5 bits a value
struct KeySection0Plane0 {
  static constexpr int kAt = 2, kLaneBits = 32, kReadBytes = 0, kLoadBytes = 4, kUnit = 2, kFirstWord = 0, kWords = 1;
  static constexpr int kWrap = 0, kWrapBits = 0;
  static constexpr bool kLoadsWholeField = false, kIsUnaligned = false;
};
struct KeySection0 {
  static constexpr int kThreads = 256, kBits = 4, kOffset = 8;
  // dimensions kFirst .. kFirst + kDim of the row as the kernel counts them: kGroups x kReads lane reads
  static constexpr int kFirst = 0, kDim = 64, kGroups = 2, kReads = 1, kReadCodes = 8, kReadWords = 1;
  static constexpr bool kIsJoined = false;
  static constexpr int kUnpackedCodes = 8;
  static constexpr int kBlocks = 1, kLanesPerBlock = 4, kBlockStride = 18;
  static constexpr int kSwizzle = 0;
  static constexpr int kScaleStride = 18, kScaleGroup = 0, kFirstScaled = 0;
  static constexpr bool kScalesGroups = true, kScalesValues = false, kRenormalises = false;
  static constexpr bool kOwnsTable = false;
  static constexpr int kTableAt = 0, kTableStride = 8, kTableCopies = 1, kCodeLaneBits = 0;
  KV_DEVICE static float scale(SharedAddress block, [[maybe_unused]] int group) {
    return f32_from_f16(load_staged_u16(block + 0 + group * 2));
  }
  KV_DEVICE static u32 scale_half(SharedAddress block, [[maybe_unused]] int group) { return load_staged_u16(block + 0 + group * 2); }
  static constexpr bool kAddsMinima = false, kScalesAreDense = false;
  static constexpr bool kIsMasked = false, kAsBfloats = false;
  static constexpr int kQueryTerms = 1, kRests = 0;  // kRests: terms of a value behind the first one
  KV_DEVICE static void unpack(const u32 (&w)[1], u32* y) {
    y[0] = ((w[0] << 4 & 0xf0f0f0f0u)) ^ 0x80808080u;
    y[1] = ((w[0] & 0xf0f0f0f0u)) ^ 0x80808080u;
  }
  static constexpr int kTableTerms = 1, kTableWords = 0;
  KV_DEVICE static u32 table_word([[maybe_unused]] int i) {
    return 0;
  }
  using Integers = PlainIntegers<KeySection0>;
  using Planes = List<KeySection0Plane0>;
};
struct KeySide {
  static constexpr bool kIsPlanar = false, kIsMisaligned = true, kHasEvenOddOrder = false, kCachesInL1 = true, kScalesGroups = true, kOwnsTable = false;
  static constexpr int kDim = 64;
  static constexpr int kRowBytes = 36, kPitch = 80, kSwizzle = 0;  // the staged row
  static constexpr int kSlotAlign = 16;
  static constexpr int kPadBytes = 0;  // zeros after a row
  static constexpr int kScaleRowBytes = 0, kScalesAt = 0, kScalePitch = 80, kStageBytes = 1280;
  static constexpr int kTableCopies = 1, kScaledGroups = 2;
  static constexpr float kUnit = 0.0625f;
  using Sections = List<KeySection0>;
};

// V as f16: 16 bits a value
struct ValueSection0Plane0 {
  static constexpr int kAt = 0, kLaneBits = 128, kReadBytes = 0, kLoadBytes = 16, kUnit = 16, kFirstWord = 0, kWords = 4;
  static constexpr int kWrap = 0, kWrapBits = 0;
  static constexpr bool kLoadsWholeField = false, kIsUnaligned = false;
};
struct ValueSection0 {
  static constexpr int kThreads = 256, kBits = 16, kOffset = 0;
  // dimensions kFirst .. kFirst + kDim of the row as the kernel counts them: kGroups x kReads lane reads
  static constexpr int kFirst = 0, kDim = 64, kGroups = 1, kReads = 1, kReadCodes = 8, kReadWords = 4;
  static constexpr bool kIsJoined = false;
  static constexpr int kUnpackedCodes = 8;
  static constexpr int kBlocks = 1, kLanesPerBlock = 8, kBlockStride = 2;
  static constexpr int kSwizzle = 0;
  static constexpr int kScaleStride = 0, kScaleGroup = 0, kFirstScaled = 0;
  static constexpr bool kScalesGroups = false, kScalesValues = false, kRenormalises = false;
  static constexpr bool kOwnsTable = false;
  static constexpr int kTableAt = 0, kTableStride = 8, kTableCopies = 1, kCodeLaneBits = 0;
  static constexpr bool kAddsMinima = false, kScalesAreDense = false;
  static constexpr bool kIsMasked = false, kAsBfloats = false;
  static constexpr int kQueryTerms = 1, kRests = 0;  // kRests: terms of a value behind the first one
  static constexpr int kTableTerms = 1, kTableWords = 0;
  KV_DEVICE static u32 table_word([[maybe_unused]] int i) {
    return 0;
  }
  using Read = F16Read<ValueSection0>;
  using Planes = List<ValueSection0Plane0>;
};
struct ValueSide {
  static constexpr bool kIsPlanar = false, kIsMisaligned = false, kHasEvenOddOrder = false, kCachesInL1 = false, kScalesGroups = false, kOwnsTable = false;
  static constexpr int kDim = 64;
  static constexpr int kRowBytes = 128, kPitch = 160, kSwizzle = 0;  // the staged row
  static constexpr int kPadBytes = 0;  // zeros after a row
  static constexpr int kScaleRowBytes = 0, kScalesAt = 0, kScalePitch = 0, kStageBytes = 2560;
  static constexpr bool kCodesAreNumbers = false;
  static constexpr int kTableCopies = 1, kScaledGroups = 0;
  static constexpr float kUnit = 1.0f;
  using Sections = List<ValueSection0>;
};

// Where each dimension of Q goes in the fragments of row 0; and the dimension of each row of O.
KV_TABLE u16 kKeyPlace[64] = {
    0, 1, 2, 3, 16, 17, 18, 19, 32, 33, 34, 35, 48, 49, 50, 51, 4, 5, 6, 7, 20, 21, 22, 23, 36, 37, 38, 
    39, 52, 53, 54, 55, 512, 513, 514, 515, 528, 529, 530, 531, 544, 545, 546, 547, 560, 561, 562, 563, 
    516, 517, 518, 519, 532, 533, 534, 535, 548, 549, 550, 551, 564, 565, 566, 567};
KV_TABLE u16 kValueOrder[64] = {
    0, 8, 16, 24, 32, 40, 48, 56, 1, 9, 17, 25, 33, 41, 49, 57, 2, 10, 18, 26, 34, 42, 50, 58, 3, 11, 
    19, 27, 35, 43, 51, 59, 4, 12, 20, 28, 36, 44, 52, 60, 5, 13, 21, 29, 37, 45, 53, 61, 6, 14, 22, 
    30, 38, 46, 54, 62, 7, 15, 23, 31, 39, 47, 55, 63};

struct Plan {
  static constexpr int kKeyDim = 64, kValueDim = 64;
  static constexpr int kQueryDim = 64, kQueryStored = 64;  // of a row of Q: of the call, before its residual
  static constexpr int kOutputDim = 64, kOutputStored = 64;  // of a row of the output, and before its residual
  static constexpr int kGroup = 1, kRows = 1, kColumnBlocks = 1, kQueryTerms = 1;
  static constexpr int kQueryChunks = 1, kAllRows = 1;
  static constexpr bool kHoldQueries = false, kHasIntegerKeys = true, kScalesQueries = true;
  static constexpr bool kRotatesQueries = false, kFusesMerge = true, kMayNeedMergeKernel = false, kRotatesOutput = false;
  static constexpr int kWarps = 8, kThreads = 256, kStages = 2, kTile = 16, kSubtiles = 1;
  static constexpr int kTeam = 1, kValueShare = 1, kOwnBlocks = 1;
  static constexpr bool kSharesReferenceMax = false;
  static constexpr bool kScalesProbabilities = false;
  static constexpr bool kByWarpgroups = false;
  static constexpr int kSchedulerAt = 0, kOrderAt = 48, kIntegerTableAt = 176;
  static constexpr int kQueriesAt = 256, kSumsAt = 1280, kSumGroups = 0, kUnitsAt = 1280;
  static constexpr int kRingAt = 1408, kStageBytes = 3840, kEpilogueAt = 256;
  static constexpr float kSumFactor = 0.0f;  // of integers: what a code stands for above its own
  using KeyCodes = KeySection0;
  using K = KeySide;
  using V = ValueSide;
  using Feature = NoFeature;
  KV_DEVICE static u32 load_query_bits(const void* data, i64 i) { return static_cast<const u16*>(data)[i]; }
  KV_DEVICE static float query_of(u32 bits) { return f32_from_f16(bits); }
  KV_DEVICE static void store(void* data, i64 i, float v) { static_cast<float*>(data)[i] = v; }
  KV_DEVICE static int key_place(int i) { return kKeyPlace[i]; }
  KV_DEVICE static bool is_bfloat([[maybe_unused]] u32 place) { return false; }
  KV_DEVICE static int value_order(int i) { return kValueOrder[i]; }
};
static_assert(KeySide::kStageBytes + ValueSide::kStageBytes == Plan::kStageBytes, "stages do not add up");

}  // namespace kv

static_assert(sizeof(kv::AttentionArgs) == 280, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(256, 1) kv_decode(KV_PARAM kv::AttentionArgs args) {
  kv::check_shared();
  kv::decode<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_decode_on_host(const void* args) {
  kv_decode(*static_cast<const kv::AttentionArgs*>(args));
}
#endif

// reference.q4_0-f16.d64.g1.q1.rows.f16-f32.sm_80
// ======== the plan ========
namespace kv {

// q4_0: 4.5 bits a value, 32 values in 18 bytes
struct KeyFormatCodesData {
  static constexpr int kCount = 32, kBits = 4;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<2, 4, 0, 16>>;
  static constexpr int kOffset = 8, kLeast = 0, kMost = 15;
};
using KeyFormatCodes = UniformCodes<KeyFormatCodesData, HalfUp>;

struct KeyFormat : FormatDefaults {
  static constexpr bool kIsPlanar = false;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 18, kScaleStride = 18, kRowUnit = 2;
  using Codes = KeyFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

// f16: 16 bits a value, 1 values in 2 bytes
struct ValueFormatCodesData {
  static constexpr int kCount = 1, kBits = 16;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 16, 0, 0>>;
  static constexpr int kAt = 0;
  using Number = F16;
};
using ValueFormatCodes = PlainCodes<ValueFormatCodesData>;

struct ValueFormat : FormatDefaults {
  static constexpr bool kIsPlanar = false;
  static constexpr int kStored = 64, kBlock = 1, kGroup = 1;
  static constexpr int kCodeStride = 2, kScaleStride = 2, kRowUnit = 2;
  using Codes = ValueFormatCodes;
};

struct Plan {
  static constexpr int kGroup = 1;
  using K = KeyFormat;
  using V = ValueFormat;
  using Feature = NoFeature;
  KV_DEVICE static float load_query(const void* data, i64 i) { return f32_from_f16(static_cast<const u16*>(data)[i]); }
  KV_DEVICE static void store(void* data, i64 i, float v) { static_cast<float*>(data)[i] = v; }
};

}  // namespace kv

static_assert(sizeof(kv::AttentionArgs) == 280, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(32, 1) kv_reference(KV_PARAM kv::AttentionArgs args) {
  kv::reference<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_reference_on_host(const void* args) {
  kv_reference(*static_cast<const kv::AttentionArgs*>(args));
}
#endif

// quantize.q4_0.d64.rows.sm_80
// ======== the plan ========
namespace kv {

// q4_0: 4.5 bits a value, 32 values in 18 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 4;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<2, 4, 0, 16>>;
  static constexpr int kOffset = 8, kLeast = 0, kMost = 15;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfUp>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = false;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 18, kScaleStride = 18, kRowUnit = 2;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct RowEncoder : EncoderDefaults {
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  static constexpr int kSpan = 32;
  static constexpr float kDivisor = -8.0f;
  using Rule = SignedMax;
  using Divide = Reciprocal;
  using Refine = AsFound;
};

struct Plan {
  static constexpr int kHeadDim = 64, kStored = 64;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4, kWarpBytes = 80;
  using F = StoredFormat;
  using Encoder = RowEncoder;
  KV_DEVICE static void pad([[maybe_unused]] const StoredRow& to) {
  }
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantize(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::quantize<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_on_host(const void* args) {
  kv_quantize(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// quantize.f16.d64.rows.sm_80
// ======== the plan ========
namespace kv {

// f16: 16 bits a value, 1 values in 2 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 1, kBits = 16;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 16, 0, 0>>;
  static constexpr int kAt = 0;
  using Number = F16;
};
using StoredFormatCodes = PlainCodes<StoredFormatCodesData>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = false;
  static constexpr int kStored = 64, kBlock = 1, kGroup = 1;
  static constexpr int kCodeStride = 2, kScaleStride = 2, kRowUnit = 2;
  using Codes = StoredFormatCodes;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct RowEncoder : EncoderDefaults {
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  static constexpr int kSpan = 1;
  static constexpr float kDivisor = 1.0f;
  using Rule = NoScale;
  using Divide = Reciprocal;
  using Refine = AsFound;
};

struct Plan {
  static constexpr int kHeadDim = 64, kStored = 64;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4, kWarpBytes = 80;
  using F = StoredFormat;
  using Encoder = RowEncoder;
  KV_DEVICE static void pad([[maybe_unused]] const StoredRow& to) {
  }
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantize(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::quantize<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_on_host(const void* args) {
  kv_quantize(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize.q4_0.d64.rows.sm_80
// ======== the plan ========
namespace kv {

// q4_0: 4.5 bits a value, 32 values in 18 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 4;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<2, 4, 0, 16>>;
  static constexpr int kOffset = 8, kLeast = 0, kMost = 15;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfUp>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = false;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 18, kScaleStride = 18, kRowUnit = 2;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 64, kStored = 64;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4, kWarpBytes = 0;
  using F = StoredFormat;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantize(KV_PARAM kv::CodecArgs args) {
  kv::dequantize<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_on_host(const void* args) {
  kv_dequantize(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize.f16.d64.rows.sm_80
// ======== the plan ========
namespace kv {

// f16: 16 bits a value, 1 values in 2 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 1, kBits = 16;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 16, 0, 0>>;
  static constexpr int kAt = 0;
  using Number = F16;
};
using StoredFormatCodes = PlainCodes<StoredFormatCodesData>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = false;
  static constexpr int kStored = 64, kBlock = 1, kGroup = 1;
  static constexpr int kCodeStride = 2, kScaleStride = 2, kRowUnit = 2;
  using Codes = StoredFormatCodes;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 64, kStored = 64;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4, kWarpBytes = 0;
  using F = StoredFormat;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantize(KV_PARAM kv::CodecArgs args) {
  kv::dequantize<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_on_host(const void* args) {
  kv_dequantize(*static_cast<const kv::CodecArgs*>(args));
}
#endif

