// rotate.forward.wht_signed128.d128.f16-f32.sm_90a
// ======== the plan ========
namespace kv {

// wht_signed, groups of 128
struct PlanRotationSigns {
  static constexpr int kSize = 128;
  static constexpr float kNorm = 0.088388346f;  // 1 / sqrt(kSize)
  KV_DEVICE static u32 pre_signs(int word) {
    constexpr u32 kWords[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
    return kWords[word];
  }
  KV_DEVICE static u32 post_signs(int word) {
    constexpr u32 kWords[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
    return kWords[word];
  }
};
using PlanRotation = Wht<PlanRotationSigns>;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 128, kStored = 128;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4;
  static constexpr bool kIsInverse = false;
  KV_DEVICE static float load(const void* data, i64 i) { return f32_from_f16(static_cast<const u16*>(data)[i]); }
  KV_DEVICE static void store(void* data, i64 i, float v) { static_cast<float*>(data)[i] = v; }
};

}  // namespace kv

static_assert(sizeof(kv::RotateArgs) == 80, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_rotate(KV_PARAM kv::RotateArgs args) {
  kv::rotate<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_rotate_on_host(const void* args) {
  kv_rotate(*static_cast<const kv::RotateArgs*>(args));
}
#endif

// decode.tbq4_wht_dfirst_corr-q8_0.d128.g4.q1.planar.causal.f16-f32.sm_90a
// ======== the plan ========
namespace kv {

// K as tbq4_wht_dfirst_corr: 4.125 bits a value
KV_CONSTANT u16 kKeySection0Halves[16] = {  // values / kUnit, as halves
    0xbdae, 0xbc4d, 0xbaba, 0xb939, 0xb7d6, 0xb576, 0xb274, 0xac45, 0x2c45, 0x3274, 0x3576, 0x37d6, 
    0x3939, 0x3aba, 0x3c4d, 0x3dae};
struct KeySection0Plane0 {
  static constexpr int kAt = 0, kLaneBits = 128, kReadBytes = 0, kLoadBytes = 16, kUnit = 16, kFirstWord = 0, kWords = 4;
  static constexpr int kWrap = 0, kWrapBits = 0;
  static constexpr bool kLoadsWholeField = false, kIsUnaligned = false;
};
struct KeySection0 {
  static constexpr int kThreads = 384, kBits = 4, kOffset = 0;
  // dimensions kFirst .. kFirst + kDim of the row as the kernel counts them: kGroups x kReads lane reads
  static constexpr int kFirst = 0, kDim = 128, kGroups = 1, kReads = 1, kReadCodes = 32, kReadWords = 4;
  static constexpr bool kIsJoined = false;
  static constexpr int kUnpackedCodes = 32;
  static constexpr int kBlocks = 1, kLanesPerBlock = 4, kBlockStride = 64;
  static constexpr int kSwizzle = 0;
  static constexpr int kScaleStride = 2, kScaleGroup = 0, kFirstScaled = 0;
  static constexpr bool kScalesGroups = true, kScalesValues = false, kRenormalises = false;
  static constexpr bool kOwnsTable = true;
  static constexpr int kTableAt = 0, kTableStride = 128, kTableCopies = 32, kCodeLaneBits = 0;
  KV_DEVICE static float scale(SharedAddress block, [[maybe_unused]] int group) {
    return f32_from_f16(load_staged_u16(block + 0 + group * 2));
  }
  KV_DEVICE static u32 scale_half(SharedAddress block, [[maybe_unused]] int group) { return load_staged_u16(block + 0 + group * 2); }
  static constexpr bool kAddsMinima = false, kScalesAreDense = true;
  KV_DEVICE static u32 half_value(int code) { return kKeySection0Halves[code]; }
  static constexpr bool kIsMasked = false, kAsBfloats = false;
  static constexpr int kQueryTerms = 1, kRests = 0;  // kRests: terms of a value behind the first one
  KV_DEVICE static void unpack(const u32 (&w)[4], u32* y) {
    y[0] = (w[0] & 0x0f0f0f0fu);
    y[1] = (w[0] >> 4 & 0x0f0f0f0fu);
    y[2] = (w[1] & 0x0f0f0f0fu);
    y[3] = (w[1] >> 4 & 0x0f0f0f0fu);
    y[4] = (w[2] & 0x0f0f0f0fu);
    y[5] = (w[2] >> 4 & 0x0f0f0f0fu);
    y[6] = (w[3] & 0x0f0f0f0fu);
    y[7] = (w[3] >> 4 & 0x0f0f0f0fu);
  }
  static constexpr int kTableTerms = 1, kTableWords = 0;
  KV_DEVICE static u32 table_word([[maybe_unused]] int i) {
    return 0;
  }
  using Pairs = TablePairs<KeySection0>;
  using Read = ByteRead<KeySection0>;
  using Planes = List<KeySection0Plane0>;
};
struct KeySide {
  static constexpr bool kIsPlanar = true, kIsMisaligned = false, kHasEvenOddOrder = false, kCachesInL1 = false, kScalesGroups = true, kOwnsTable = true;
  static constexpr int kDim = 128;
  static constexpr int kRowBytes = 64, kPitch = 64, kSwizzle = 0;  // the staged row
  static constexpr int kPadBytes = 0;  // zeros after a row
  static constexpr int kScaleRowBytes = 2, kScalesAt = 2048, kScalePitch = 2, kStageBytes = 2176;
  static constexpr int kTableCopies = 32, kScaledGroups = 1;
  static constexpr float kUnit = 0.17011923f;
  using Sections = List<KeySection0>;
};

// V as q8_0: 8.5 bits a value
struct ValueSection0Plane0 {
  static constexpr int kAt = 0, kLaneBits = 32, kReadBytes = 0, kLoadBytes = 4, kUnit = 4, kFirstWord = 0, kWords = 1;
  static constexpr int kWrap = 0, kWrapBits = 0;
  static constexpr bool kLoadsWholeField = false, kIsUnaligned = false;
};
struct ValueSection0 {
  static constexpr int kThreads = 384, kBits = 8, kOffset = 128;
  // dimensions kFirst .. kFirst + kDim of the row as the kernel counts them: kGroups x kReads lane reads
  static constexpr int kFirst = 0, kDim = 128, kGroups = 4, kReads = 1, kReadCodes = 4, kReadWords = 1;
  static constexpr bool kIsJoined = false;
  static constexpr int kUnpackedCodes = 4;
  static constexpr int kBlocks = 1, kLanesPerBlock = 8, kBlockStride = 32;
  static constexpr int kSwizzle = 4;
  static constexpr int kScaleStride = 2, kScaleGroup = 0, kFirstScaled = 0;
  static constexpr bool kScalesGroups = true, kScalesValues = false, kRenormalises = false;
  static constexpr bool kOwnsTable = false;
  static constexpr int kTableAt = 0, kTableStride = 128, kTableCopies = 32, kCodeLaneBits = 0;
  KV_DEVICE static float scale(SharedAddress block, [[maybe_unused]] int group) {
    return f32_from_f16(load_staged_u16(block + 0 + group * 2));
  }
  KV_DEVICE static u32 scale_half(SharedAddress block, [[maybe_unused]] int group) { return load_staged_u16(block + 0 + group * 2); }
  static constexpr bool kAddsMinima = false, kScalesAreDense = false;
  static constexpr bool kIsMasked = false, kAsBfloats = false;
  static constexpr int kQueryTerms = 1, kRests = 0;  // kRests: terms of a value behind the first one
  KV_DEVICE static void unpack(const u32 (&w)[1], u32* y) {
    y[0] = (w[0]) ^ 0x80808080u;
  }
  static constexpr int kTableTerms = 1, kTableWords = 0;
  KV_DEVICE static u32 table_word([[maybe_unused]] int i) {
    return 0;
  }
  using Pairs = UniformPairs<ValueSection0>;
  using Read = CodeRead<ValueSection0>;
  using Planes = List<ValueSection0Plane0>;
};
struct ValueSide {
  static constexpr bool kIsPlanar = true, kIsMisaligned = false, kHasEvenOddOrder = false, kCachesInL1 = false, kScalesGroups = true, kOwnsTable = false;
  static constexpr int kDim = 128;
  static constexpr int kRowBytes = 128, kPitch = 128, kSwizzle = 4;  // the staged row
  static constexpr int kPadBytes = 0;  // zeros after a row
  static constexpr int kScaleRowBytes = 8, kScalesAt = 4096, kScalePitch = 8, kStageBytes = 4352;
  static constexpr bool kCodesAreNumbers = true;
  static constexpr int kTableCopies = 32, kScaledGroups = 4;
  static constexpr float kUnit = 1.0f;
  using Sections = List<ValueSection0>;
};

// Where each dimension of Q goes in the fragments of row 0; and the dimension of each row of O.
KV_TABLE u16 kKeyPlace[128] = {
    0, 2, 4, 6, 256, 258, 260, 262, 512, 514, 516, 518, 768, 770, 772, 774, 1024, 1026, 1028, 1030, 
    1280, 1282, 1284, 1286, 1536, 1538, 1540, 1542, 1792, 1794, 1796, 1798, 8, 10, 12, 14, 264, 266, 
    268, 270, 520, 522, 524, 526, 776, 778, 780, 782, 1032, 1034, 1036, 1038, 1288, 1290, 1292, 1294, 
    1544, 1546, 1548, 1550, 1800, 1802, 1804, 1806, 16, 18, 20, 22, 272, 274, 276, 278, 528, 530, 532, 
    534, 784, 786, 788, 790, 1040, 1042, 1044, 1046, 1296, 1298, 1300, 1302, 1552, 1554, 1556, 1558, 
    1808, 1810, 1812, 1814, 24, 26, 28, 30, 280, 282, 284, 286, 536, 538, 540, 542, 792, 794, 796, 798, 
    1048, 1050, 1052, 1054, 1304, 1306, 1308, 1310, 1560, 1562, 1564, 1566, 1816, 1818, 1820, 1822};
KV_TABLE u16 kValueOrder[128] = {
    0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29, 2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 
    15, 19, 23, 27, 31, 32, 36, 40, 44, 48, 52, 56, 60, 33, 37, 41, 45, 49, 53, 57, 61, 34, 38, 42, 46, 
    50, 54, 58, 62, 35, 39, 43, 47, 51, 55, 59, 63, 64, 68, 72, 76, 80, 84, 88, 92, 65, 69, 73, 77, 81, 
    85, 89, 93, 66, 70, 74, 78, 82, 86, 90, 94, 67, 71, 75, 79, 83, 87, 91, 95, 96, 100, 104, 108, 112, 
    116, 120, 124, 97, 101, 105, 109, 113, 117, 121, 125, 98, 102, 106, 110, 114, 118, 122, 126, 99, 
    103, 107, 111, 115, 119, 123, 127};

// wht_signed, groups of 128
struct KeyRotationSigns {
  static constexpr int kSize = 128;
  static constexpr float kNorm = 0.088388346f;  // 1 / sqrt(kSize)
  KV_DEVICE static u32 pre_signs(int word) {
    constexpr u32 kWords[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
    return kWords[word];
  }
  KV_DEVICE static u32 post_signs(int word) {
    constexpr u32 kWords[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
    return kWords[word];
  }
};
using KeyRotation = Wht<KeyRotationSigns>;

using KeyProjection = NoRotation;

struct KeyDomain {
  static constexpr int kHeadDim = 128, kStored = 128;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = KeyRotation;
  using Projection = KeyProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
};

struct Plan {
  static constexpr int kKeyDim = 128, kValueDim = 128;
  static constexpr int kQueryDim = 128, kQueryStored = 128;  // of a row of Q: of the call, before its residual
  static constexpr int kOutputDim = 128, kOutputStored = 128;  // of a row of the output, and before its residual
  static constexpr int kGroup = 4, kRows = 4, kColumnBlocks = 1, kQueryTerms = 1;
  static constexpr int kQueryChunks = 1, kAllRows = 4;
  static constexpr bool kHoldQueries = true, kHasIntegerKeys = false, kScalesQueries = true;
  static constexpr bool kRotatesQueries = true, kFusesMerge = true, kMayNeedMergeKernel = false, kRotatesOutput = false;
  static constexpr int kWarps = 12, kThreads = 384, kStages = 2, kTile = 32, kSubtiles = 2;
  static constexpr int kTeam = 1, kValueShare = 1, kOwnBlocks = 1;
  static constexpr bool kSharesReferenceMax = false;
  static constexpr bool kScalesProbabilities = false;
  static constexpr bool kByWarpgroups = false;
  static constexpr int kSchedulerAt = 32768, kOrderAt = 32816, kIntegerTableAt = 33072;
  static constexpr int kQueriesAt = 33152, kSumsAt = 35200, kSumGroups = 0, kUnitsAt = 35200;
  static constexpr int kRingAt = 35328, kStageBytes = 6528, kEpilogueAt = 33152;
  static constexpr float kSumFactor = 0.0f;  // of integers: what a code stands for above its own
  using KeyCodes = KeySection0;
  using K = KeySide;
  using V = ValueSide;
  using Feature = Causal<1>;
  using KeyDomain = kv::KeyDomain;
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

KV_KERNEL KV_LAUNCH_BOUNDS(384, 1) kv_decode(KV_PARAM kv::AttentionArgs args) {
  kv::check_shared();
  kv::decode<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_decode_on_host(const void* args) {
  kv_decode(*static_cast<const kv::AttentionArgs*>(args));
}
#endif

// reference.tbq4_wht_dfirst_corr-q8_0.d128.g4.q1.planar.causal.f16-f32.sm_90a
// ======== the plan ========
namespace kv {

// tbq4_wht_dfirst_corr: 4.125 bits a value, 128 values in 66 bytes
KV_TABLE float kKeyFormatCodesValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
KV_TABLE float kKeyFormatCodesBounds[15] = {
    -0.212232f, -0.162977f, -0.127056f, -0.097191f, -0.070693f, -0.04619f, -0.022832f, 0.0f, 0.022832f, 
    0.04619f, 0.070693f, 0.097191f, 0.127056f, 0.162977f, 0.212232f};
struct KeyFormatCodesData {
  static constexpr int kCount = 128, kBits = 4;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 4, 0, 0>>;
  static constexpr int kBounds = 15;
  KV_DEVICE static float value(u32 code) { return kKeyFormatCodesValues[code]; }
  KV_DEVICE static float bound(int i) { return kKeyFormatCodesBounds[i]; }
  KV_DEVICE static u32 cell_code(int cell) { return u32(cell); }
};
using KeyFormatCodes = TableCodes<KeyFormatCodesData>;

struct KeyFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 128, kGroup = 128;
  static constexpr int kCodeStride = 64, kScaleStride = 2, kRowUnit = 4;
  using Codes = KeyFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct ValueFormatCodesData {
  static constexpr int kCount = 32, kBits = 8;
  static constexpr u32 kCodeXor = 0x80;
  using Fields = CodeFields<CodeField<0, 8, 0, 0>>;
  static constexpr int kOffset = 128, kLeast = 1, kMost = 255;
};
using ValueFormatCodes = UniformCodes<ValueFormatCodesData, HalfAway>;

struct ValueFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 32, kScaleStride = 2, kRowUnit = 4;
  using Codes = ValueFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

struct Plan {
  static constexpr int kGroup = 4;
  using K = KeyFormat;
  using V = ValueFormat;
  using Feature = Causal<1>;
  KV_DEVICE static float load_query(const void* data, i64 i) { return static_cast<const float*>(data)[i]; }
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

// quantize.tbq4_wht_dfirst_corr.d128.planar.sm_90a
// ======== the plan ========
namespace kv {

// tbq4_wht_dfirst_corr: 4.125 bits a value, 128 values in 66 bytes
KV_TABLE float kStoredFormatCodesValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
KV_TABLE float kStoredFormatCodesBounds[15] = {
    -0.212232f, -0.162977f, -0.127056f, -0.097191f, -0.070693f, -0.04619f, -0.022832f, 0.0f, 0.022832f, 
    0.04619f, 0.070693f, 0.097191f, 0.127056f, 0.162977f, 0.212232f};
struct StoredFormatCodesData {
  static constexpr int kCount = 128, kBits = 4;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 4, 0, 0>>;
  static constexpr int kBounds = 15;
  KV_DEVICE static float value(u32 code) { return kStoredFormatCodesValues[code]; }
  KV_DEVICE static float bound(int i) { return kStoredFormatCodesBounds[i]; }
  KV_DEVICE static u32 cell_code(int cell) { return u32(cell); }
};
using StoredFormatCodes = TableCodes<StoredFormatCodesData>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 128, kGroup = 128;
  static constexpr int kCodeStride = 64, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

// wht_signed, groups of 128
struct PlanRotationSigns {
  static constexpr int kSize = 128;
  static constexpr float kNorm = 0.088388346f;  // 1 / sqrt(kSize)
  KV_DEVICE static u32 pre_signs(int word) {
    constexpr u32 kWords[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
    return kWords[word];
  }
  KV_DEVICE static u32 post_signs(int word) {
    constexpr u32 kWords[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
    return kWords[word];
  }
};
using PlanRotation = Wht<PlanRotationSigns>;

using PlanProjection = NoRotation;

struct RowEncoder : EncoderDefaults {
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  static constexpr int kSpan = 128;
  static constexpr float kDivisor = 1.0f;
  using Rule = Norm;
  using Divide = UnitVector;
  using Refine = Matched;
};

struct Plan {
  static constexpr int kHeadDim = 128, kStored = 128;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4, kWarpBytes = 144;
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

// quantize.q8_0.d128.planar.sm_90a
// ======== the plan ========
namespace kv {

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 8;
  static constexpr u32 kCodeXor = 0x80;
  using Fields = CodeFields<CodeField<0, 8, 0, 0>>;
  static constexpr int kOffset = 128, kLeast = 1, kMost = 255;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 32, kScaleStride = 2, kRowUnit = 4;
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
  static constexpr float kDivisor = 127.0f;
  using Rule = Amax;
  using Divide = Reciprocal;
  using Refine = AsFound;
};

struct Plan {
  static constexpr int kHeadDim = 128, kStored = 128;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4, kWarpBytes = 144;
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

// dequantize.tbq4_wht_dfirst_corr.d128.planar.sm_90a
// ======== the plan ========
namespace kv {

// tbq4_wht_dfirst_corr: 4.125 bits a value, 128 values in 66 bytes
KV_TABLE float kStoredFormatCodesValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
KV_TABLE float kStoredFormatCodesBounds[15] = {
    -0.212232f, -0.162977f, -0.127056f, -0.097191f, -0.070693f, -0.04619f, -0.022832f, 0.0f, 0.022832f, 
    0.04619f, 0.070693f, 0.097191f, 0.127056f, 0.162977f, 0.212232f};
struct StoredFormatCodesData {
  static constexpr int kCount = 128, kBits = 4;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 4, 0, 0>>;
  static constexpr int kBounds = 15;
  KV_DEVICE static float value(u32 code) { return kStoredFormatCodesValues[code]; }
  KV_DEVICE static float bound(int i) { return kStoredFormatCodesBounds[i]; }
  KV_DEVICE static u32 cell_code(int cell) { return u32(cell); }
};
using StoredFormatCodes = TableCodes<StoredFormatCodesData>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 128, kGroup = 128;
  static constexpr int kCodeStride = 64, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

// wht_signed, groups of 128
struct PlanRotationSigns {
  static constexpr int kSize = 128;
  static constexpr float kNorm = 0.088388346f;  // 1 / sqrt(kSize)
  KV_DEVICE static u32 pre_signs(int word) {
    constexpr u32 kWords[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
    return kWords[word];
  }
  KV_DEVICE static u32 post_signs(int word) {
    constexpr u32 kWords[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
    return kWords[word];
  }
};
using PlanRotation = Wht<PlanRotationSigns>;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 128, kStored = 128;
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

// dequantize.q8_0.d128.planar.sm_90a
// ======== the plan ========
namespace kv {

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 8;
  static constexpr u32 kCodeXor = 0x80;
  using Fields = CodeFields<CodeField<0, 8, 0, 0>>;
  static constexpr int kOffset = 128, kLeast = 1, kMost = 255;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 32, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 128, kStored = 128;
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

// quantize_bulk_wgmma.tbq4_wht_dfirst_corr.d128.planar.f16.sm_90a
// ======== the plan ========
namespace kv {

KV_CONSTANT float kValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
KV_CONSTANT u32 kBuckets[128] = {
    0xb5000000, 0xb4ff0000, 0xb4fe0000, 0xb4fd0000, 0xb4fc0000, 0xb4fb0000, 0xb4fa0000, 0xb4f90000, 
    0xb4f80000, 0xb4f70000, 0xb4f60000, 0xb4f50000, 0xb4f40000, 0xb4f30000, 0xb4f20000, 0xb4f10000, 
    0xb4f00000, 0xb4ef0000, 0xb4ee0000, 0xb4ed0000, 0xb4ec0000, 0xb4eb0000, 0xb4ea0000, 0xb4e90000, 
    0xb4e80000, 0xb4e70000, 0xb4e60000, 0xb4e50000, 0xb4e40000, 0xb4e30000, 0xb4e20000, 0xb4e10000, 
    0xb4e00000, 0xb4df0000, 0xb4de0000, 0xb4dd0000, 0xb4dc0000, 0xb4db0000, 0xb4da0000, 0xb4d90000, 
    0xb4d80000, 0xb4d70000, 0xb4d60000, 0xb4d50000, 0xb4d40000, 0xb4d30000, 0xb4d20000, 0xb4d10000, 
    0xb4d00000, 0xb4cf0000, 0xb4ce0000, 0xb4cd0000, 0xb4cc0000, 0xb4cb0000, 0xb4ca9ac2, 0xb4ca0000, 
    0xb4c96021, 0xb4c90000, 0xb4c8bff9, 0xb4c865fb, 0xb4c832ff, 0xb4c8171f, 0xb4c80884, 0xb4c80000, 
    0xb4c80000, 0xb4c7f77c, 0xb4c7e8e1, 0xb4c7cd01, 0xb4c79a05, 0xb4c74007, 0xb4c70000, 0xb4c69fdf, 
    0xb4c60000, 0xb4c5653e, 0xb4c50000, 0xb4c40000, 0xb4c30000, 0xb4c20000, 0xb4c10000, 0xb4c00000, 
    0xb4bf0000, 0xb4be0000, 0xb4bd0000, 0xb4bc0000, 0xb4bb0000, 0xb4ba0000, 0xb4b90000, 0xb4b80000, 
    0xb4b70000, 0xb4b60000, 0xb4b50000, 0xb4b40000, 0xb4b30000, 0xb4b20000, 0xb4b10000, 0xb4b00000, 
    0xb4af0000, 0xb4ae0000, 0xb4ad0000, 0xb4ac0000, 0xb4ab0000, 0xb4aa0000, 0xb4a90000, 0xb4a80000, 
    0xb4a70000, 0xb4a60000, 0xb4a50000, 0xb4a40000, 0xb4a30000, 0xb4a20000, 0xb4a10000, 0xb4a00000, 
    0xb49f0000, 0xb49e0000, 0xb49d0000, 0xb49c0000, 0xb49b0000, 0xb49a0000, 0xb4990000, 0xb4980000, 
    0xb4970000, 0xb4960000, 0xb4950000, 0xb4940000, 0xb4930000, 0xb4920000, 0xb4910000, 0xb4900000};
// wht_signed: a set bit is -1
KV_CONSTANT u32 kPreSigns[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
KV_CONSTANT u32 kPostSigns[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
struct Stored {
  static constexpr bool kIsPlanar = true;
};
struct Plan : BulkDefaults {
  using F = Stored;
  static constexpr int kHeadDim = 128, kWarps = 16, kThreads = 512, kBits = 4;
  static constexpr int kCodesAt = 0, kScaleAt = 0, kCodeStride = 64, kScaleStride = 2, kCodeUnit = 16;
  using Packing = StreamCodes<4>;
  static constexpr int kLaneStride = 16;  // of the codes' words, bytes
  static constexpr int kMatrixAt = 65536, kStageAt = 98304;
  KV_DEVICE static float value(int code) { return kValues[code]; }
  static constexpr float kSquareStep = 268435460.0f;  // integer steps of 1 in squared lengths
  static constexpr bool kIsMatched = true, kIsSignMagnitude = false;
  KV_DEVICE static u32 bucket(int i) { return kBuckets[i]; }
  using Input = HalfInput;
  // a product, for a row of length 1, is this many standard deviations, and its square times kSquareUnit is of the row
  static constexpr float kDeviations = 1.0f, kSquareUnit = 0.0078125f;
  KV_DEVICE static u32 pre_signs(int word) { return kPreSigns[word]; }
  KV_DEVICE static u32 post_signs(int word) { return kPostSigns[word]; }
  static constexpr int kRestBits = 0;
  KV_DEVICE static float matrix(int i, int k) { return wht_entry<Plan>(i, k); }
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(512, 1) kv_quantize_bulk_wgmma(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::quantize_bulk_wgmma<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_bulk_wgmma_on_host(const void* args) {
  kv_quantize_bulk_wgmma(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// quantize_bulk_wgmma.tbq4_wht_dfirst_corr.d128.planar.bf16.sm_90a
// ======== the plan ========
namespace kv {

KV_CONSTANT float kValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
KV_CONSTANT u32 kBuckets[128] = {
    0xb5000000, 0xb4ff0000, 0xb4fe0000, 0xb4fd0000, 0xb4fc0000, 0xb4fb0000, 0xb4fa0000, 0xb4f90000, 
    0xb4f80000, 0xb4f70000, 0xb4f60000, 0xb4f50000, 0xb4f40000, 0xb4f30000, 0xb4f20000, 0xb4f10000, 
    0xb4f00000, 0xb4ef0000, 0xb4ee0000, 0xb4ed0000, 0xb4ec0000, 0xb4eb0000, 0xb4ea0000, 0xb4e90000, 
    0xb4e80000, 0xb4e70000, 0xb4e60000, 0xb4e50000, 0xb4e40000, 0xb4e30000, 0xb4e20000, 0xb4e10000, 
    0xb4e00000, 0xb4df0000, 0xb4de0000, 0xb4dd0000, 0xb4dc0000, 0xb4db0000, 0xb4da0000, 0xb4d90000, 
    0xb4d80000, 0xb4d70000, 0xb4d60000, 0xb4d50000, 0xb4d40000, 0xb4d30000, 0xb4d20000, 0xb4d10000, 
    0xb4d00000, 0xb4cf0000, 0xb4ce0000, 0xb4cd0000, 0xb4cc0000, 0xb4cb0000, 0xb4ca9ac2, 0xb4ca0000, 
    0xb4c96021, 0xb4c90000, 0xb4c8bff9, 0xb4c865fb, 0xb4c832ff, 0xb4c8171f, 0xb4c80884, 0xb4c80000, 
    0xb4c80000, 0xb4c7f77c, 0xb4c7e8e1, 0xb4c7cd01, 0xb4c79a05, 0xb4c74007, 0xb4c70000, 0xb4c69fdf, 
    0xb4c60000, 0xb4c5653e, 0xb4c50000, 0xb4c40000, 0xb4c30000, 0xb4c20000, 0xb4c10000, 0xb4c00000, 
    0xb4bf0000, 0xb4be0000, 0xb4bd0000, 0xb4bc0000, 0xb4bb0000, 0xb4ba0000, 0xb4b90000, 0xb4b80000, 
    0xb4b70000, 0xb4b60000, 0xb4b50000, 0xb4b40000, 0xb4b30000, 0xb4b20000, 0xb4b10000, 0xb4b00000, 
    0xb4af0000, 0xb4ae0000, 0xb4ad0000, 0xb4ac0000, 0xb4ab0000, 0xb4aa0000, 0xb4a90000, 0xb4a80000, 
    0xb4a70000, 0xb4a60000, 0xb4a50000, 0xb4a40000, 0xb4a30000, 0xb4a20000, 0xb4a10000, 0xb4a00000, 
    0xb49f0000, 0xb49e0000, 0xb49d0000, 0xb49c0000, 0xb49b0000, 0xb49a0000, 0xb4990000, 0xb4980000, 
    0xb4970000, 0xb4960000, 0xb4950000, 0xb4940000, 0xb4930000, 0xb4920000, 0xb4910000, 0xb4900000};
// wht_signed: a set bit is -1
KV_CONSTANT u32 kPreSigns[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
KV_CONSTANT u32 kPostSigns[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
struct Stored {
  static constexpr bool kIsPlanar = true;
};
struct Plan : BulkDefaults {
  using F = Stored;
  static constexpr int kHeadDim = 128, kWarps = 16, kThreads = 512, kBits = 4;
  static constexpr int kCodesAt = 0, kScaleAt = 0, kCodeStride = 64, kScaleStride = 2, kCodeUnit = 16;
  using Packing = StreamCodes<4>;
  static constexpr int kLaneStride = 16;  // of the codes' words, bytes
  static constexpr int kMatrixAt = 65536, kStageAt = 98304;
  KV_DEVICE static float value(int code) { return kValues[code]; }
  static constexpr float kSquareStep = 268435460.0f;  // integer steps of 1 in squared lengths
  static constexpr bool kIsMatched = true, kIsSignMagnitude = false;
  KV_DEVICE static u32 bucket(int i) { return kBuckets[i]; }
  using Input = BfloatInput;
  // a product, for a row of length 1, is this many standard deviations, and its square times kSquareUnit is of the row
  static constexpr float kDeviations = 1.0f, kSquareUnit = 0.0078125f;
  KV_DEVICE static u32 pre_signs(int word) { return kPreSigns[word]; }
  KV_DEVICE static u32 post_signs(int word) { return kPostSigns[word]; }
  static constexpr int kRestBits = 0;
  KV_DEVICE static float matrix(int i, int k) { return wht_entry<Plan>(i, k); }
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(512, 1) kv_quantize_bulk_wgmma(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::quantize_bulk_wgmma<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_bulk_wgmma_on_host(const void* args) {
  kv_quantize_bulk_wgmma(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// quantize_bulk_wgmma.tbq4_wht_dfirst_corr.d128.planar.f32.sm_90a
// ======== the plan ========
namespace kv {

KV_CONSTANT float kValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
KV_CONSTANT u32 kBuckets[128] = {
    0xb5000000, 0xb4ff0000, 0xb4fe0000, 0xb4fd0000, 0xb4fc0000, 0xb4fb0000, 0xb4fa0000, 0xb4f90000, 
    0xb4f80000, 0xb4f70000, 0xb4f60000, 0xb4f50000, 0xb4f40000, 0xb4f30000, 0xb4f20000, 0xb4f10000, 
    0xb4f00000, 0xb4ef0000, 0xb4ee0000, 0xb4ed0000, 0xb4ec0000, 0xb4eb0000, 0xb4ea0000, 0xb4e90000, 
    0xb4e80000, 0xb4e70000, 0xb4e60000, 0xb4e50000, 0xb4e40000, 0xb4e30000, 0xb4e20000, 0xb4e10000, 
    0xb4e00000, 0xb4df0000, 0xb4de0000, 0xb4dd0000, 0xb4dc0000, 0xb4db0000, 0xb4da0000, 0xb4d90000, 
    0xb4d80000, 0xb4d70000, 0xb4d60000, 0xb4d50000, 0xb4d40000, 0xb4d30000, 0xb4d20000, 0xb4d10000, 
    0xb4d00000, 0xb4cf0000, 0xb4ce0000, 0xb4cd0000, 0xb4cc0000, 0xb4cb0000, 0xb4ca9ac2, 0xb4ca0000, 
    0xb4c96021, 0xb4c90000, 0xb4c8bff9, 0xb4c865fb, 0xb4c832ff, 0xb4c8171f, 0xb4c80884, 0xb4c80000, 
    0xb4c80000, 0xb4c7f77c, 0xb4c7e8e1, 0xb4c7cd01, 0xb4c79a05, 0xb4c74007, 0xb4c70000, 0xb4c69fdf, 
    0xb4c60000, 0xb4c5653e, 0xb4c50000, 0xb4c40000, 0xb4c30000, 0xb4c20000, 0xb4c10000, 0xb4c00000, 
    0xb4bf0000, 0xb4be0000, 0xb4bd0000, 0xb4bc0000, 0xb4bb0000, 0xb4ba0000, 0xb4b90000, 0xb4b80000, 
    0xb4b70000, 0xb4b60000, 0xb4b50000, 0xb4b40000, 0xb4b30000, 0xb4b20000, 0xb4b10000, 0xb4b00000, 
    0xb4af0000, 0xb4ae0000, 0xb4ad0000, 0xb4ac0000, 0xb4ab0000, 0xb4aa0000, 0xb4a90000, 0xb4a80000, 
    0xb4a70000, 0xb4a60000, 0xb4a50000, 0xb4a40000, 0xb4a30000, 0xb4a20000, 0xb4a10000, 0xb4a00000, 
    0xb49f0000, 0xb49e0000, 0xb49d0000, 0xb49c0000, 0xb49b0000, 0xb49a0000, 0xb4990000, 0xb4980000, 
    0xb4970000, 0xb4960000, 0xb4950000, 0xb4940000, 0xb4930000, 0xb4920000, 0xb4910000, 0xb4900000};
// wht_signed: a set bit is -1
KV_CONSTANT u32 kPreSigns[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
KV_CONSTANT u32 kPostSigns[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
struct Stored {
  static constexpr bool kIsPlanar = true;
};
struct Plan : BulkDefaults {
  using F = Stored;
  static constexpr int kHeadDim = 128, kWarps = 12, kThreads = 384, kBits = 4;
  static constexpr int kCodesAt = 0, kScaleAt = 0, kCodeStride = 64, kScaleStride = 2, kCodeUnit = 16;
  using Packing = StreamCodes<4>;
  static constexpr int kLaneStride = 16;  // of the codes' words, bytes
  static constexpr int kMatrixAt = 65536, kStageAt = 98304;
  KV_DEVICE static float value(int code) { return kValues[code]; }
  static constexpr float kSquareStep = 268435460.0f;  // integer steps of 1 in squared lengths
  static constexpr bool kIsMatched = true, kIsSignMagnitude = false;
  KV_DEVICE static u32 bucket(int i) { return kBuckets[i]; }
  using Input = FloatInput;
  // a product, for a row of length 1, is this many standard deviations, and its square times kSquareUnit is of the row
  static constexpr float kDeviations = 1.0f, kSquareUnit = 0.0078125f;
  KV_DEVICE static u32 pre_signs(int word) { return kPreSigns[word]; }
  KV_DEVICE static u32 post_signs(int word) { return kPostSigns[word]; }
  static constexpr int kRestBits = 0;
  KV_DEVICE static float matrix(int i, int k) { return wht_entry<Plan>(i, k); }
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(384, 1) kv_quantize_bulk_wgmma(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::quantize_bulk_wgmma<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_bulk_wgmma_on_host(const void* args) {
  kv_quantize_bulk_wgmma(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// quantize_bulk_blocks.q8_0.d128.planar.f16.sm_90a
// ======== the plan ========
namespace kv {

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 8;
  static constexpr u32 kCodeXor = 0x80;
  using Fields = CodeFields<CodeField<0, 8, 0, 0>>;
  static constexpr int kOffset = 128, kLeast = 1, kMost = 255;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 32, kScaleStride = 2, kRowUnit = 4;
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
  static constexpr float kDivisor = 127.0f;
  using Rule = Amax;
  using Divide = Reciprocal;
  using Refine = AsFound;
};

struct LaneEncoder : RowEncoder {
  using Lanes = InLane;
};

struct Plan {
  static constexpr int kHeadDim = 128, kThreads = 128, kValues = 32;
  using Encoder = LaneEncoder;
  using Words = F16Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::quantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_bulk_blocks_on_host(const void* args) {
  kv_quantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// quantize_bulk_blocks.q8_0.d128.planar.bf16.sm_90a
// ======== the plan ========
namespace kv {

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 8;
  static constexpr u32 kCodeXor = 0x80;
  using Fields = CodeFields<CodeField<0, 8, 0, 0>>;
  static constexpr int kOffset = 128, kLeast = 1, kMost = 255;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 32, kScaleStride = 2, kRowUnit = 4;
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
  static constexpr float kDivisor = 127.0f;
  using Rule = Amax;
  using Divide = Reciprocal;
  using Refine = AsFound;
};

struct LaneEncoder : RowEncoder {
  using Lanes = InLane;
};

struct Plan {
  static constexpr int kHeadDim = 128, kThreads = 128, kValues = 32;
  using Encoder = LaneEncoder;
  using Words = Bf16Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::quantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_bulk_blocks_on_host(const void* args) {
  kv_quantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// quantize_bulk_blocks.q8_0.d128.planar.f32.sm_90a
// ======== the plan ========
namespace kv {

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 8;
  static constexpr u32 kCodeXor = 0x80;
  using Fields = CodeFields<CodeField<0, 8, 0, 0>>;
  static constexpr int kOffset = 128, kLeast = 1, kMost = 255;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 32, kScaleStride = 2, kRowUnit = 4;
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
  static constexpr float kDivisor = 127.0f;
  using Rule = Amax;
  using Divide = Reciprocal;
  using Refine = AsFound;
};

struct LaneEncoder : RowEncoder {
  using Lanes = InLane;
};

struct Plan {
  static constexpr int kHeadDim = 128, kThreads = 128, kValues = 32;
  using Encoder = LaneEncoder;
  using Words = F32Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::quantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_bulk_blocks_on_host(const void* args) {
  kv_quantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize_bulk.tbq4_wht_dfirst_corr.d128.planar.f16.sm_90a
// ======== the plan ========
namespace kv {

KV_CONSTANT float kValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
// wht_signed: a set bit is -1
KV_CONSTANT u32 kPreSigns[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
KV_CONSTANT u32 kPostSigns[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
struct Stored {
  static constexpr bool kIsPlanar = true;
};
struct Plan : BulkDefaults {
  using F = Stored;
  static constexpr int kHeadDim = 128, kWarps = 12, kThreads = 384, kBits = 4;
  static constexpr int kCodesAt = 0, kScaleAt = 0, kCodeStride = 64, kScaleStride = 2, kCodeUnit = 16;
  using Packing = StreamCodes<4>;
  static constexpr int kLaneStride = 16;  // of the codes' words, bytes
  static constexpr int kMatrixAt = 65536, kStageAt = 67584;
  KV_DEVICE static float value(int code) { return kValues[code]; }
  // halves hold values / kUnit; a transformed sum times kFactor and the stored scale is a value
  static constexpr float kUnit = 0.17011923f, kFactor = 0.015036557f;
  static constexpr int kCodeTerms = 1;
  using Output = HalfOutput;
  KV_DEVICE static u32 pre_signs(int word) { return kPreSigns[word]; }
  KV_DEVICE static u32 post_signs(int word) { return kPostSigns[word]; }
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(384, 1) kv_dequantize_bulk(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::dequantize_bulk<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_bulk_on_host(const void* args) {
  kv_dequantize_bulk(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize_bulk.tbq4_wht_dfirst_corr.d128.planar.bf16.sm_90a
// ======== the plan ========
namespace kv {

KV_CONSTANT float kValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
// wht_signed: a set bit is -1
KV_CONSTANT u32 kPreSigns[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
KV_CONSTANT u32 kPostSigns[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
struct Stored {
  static constexpr bool kIsPlanar = true;
};
struct Plan : BulkDefaults {
  using F = Stored;
  static constexpr int kHeadDim = 128, kWarps = 12, kThreads = 384, kBits = 4;
  static constexpr int kCodesAt = 0, kScaleAt = 0, kCodeStride = 64, kScaleStride = 2, kCodeUnit = 16;
  using Packing = StreamCodes<4>;
  static constexpr int kLaneStride = 16;  // of the codes' words, bytes
  static constexpr int kMatrixAt = 65536, kStageAt = 67584;
  KV_DEVICE static float value(int code) { return kValues[code]; }
  // halves hold values / kUnit; a transformed sum times kFactor and the stored scale is a value
  static constexpr float kUnit = 0.17011923f, kFactor = 0.015036557f;
  static constexpr int kCodeTerms = 1;
  using Output = BfloatOutput;
  KV_DEVICE static u32 pre_signs(int word) { return kPreSigns[word]; }
  KV_DEVICE static u32 post_signs(int word) { return kPostSigns[word]; }
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(384, 1) kv_dequantize_bulk(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::dequantize_bulk<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_bulk_on_host(const void* args) {
  kv_dequantize_bulk(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize_bulk.tbq4_wht_dfirst_corr.d128.planar.f32.sm_90a
// ======== the plan ========
namespace kv {

KV_CONSTANT float kValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
// wht_signed: a set bit is -1
KV_CONSTANT u32 kPreSigns[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
KV_CONSTANT u32 kPostSigns[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
struct Stored {
  static constexpr bool kIsPlanar = true;
};
struct Plan : BulkDefaults {
  using F = Stored;
  static constexpr int kHeadDim = 128, kWarps = 12, kThreads = 384, kBits = 4;
  static constexpr int kCodesAt = 0, kScaleAt = 0, kCodeStride = 64, kScaleStride = 2, kCodeUnit = 16;
  using Packing = StreamCodes<4>;
  static constexpr int kLaneStride = 16;  // of the codes' words, bytes
  static constexpr int kMatrixAt = 65536, kStageAt = 67584;
  KV_DEVICE static float value(int code) { return kValues[code]; }
  // halves hold values / kUnit; a transformed sum times kFactor and the stored scale is a value
  static constexpr float kUnit = 0.17011923f, kFactor = 0.015036557f;
  static constexpr int kCodeTerms = 2;
  using Output = FloatOutput;
  KV_DEVICE static u32 pre_signs(int word) { return kPreSigns[word]; }
  KV_DEVICE static u32 post_signs(int word) { return kPostSigns[word]; }
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(384, 1) kv_dequantize_bulk(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::dequantize_bulk<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_bulk_on_host(const void* args) {
  kv_dequantize_bulk(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize_bulk_blocks.q8_0.d128.planar.f16.sm_90a
// ======== the plan ========
namespace kv {

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 8;
  static constexpr u32 kCodeXor = 0x80;
  using Fields = CodeFields<CodeField<0, 8, 0, 0>>;
  static constexpr int kOffset = 128, kLeast = 1, kMost = 255;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 32, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 128, kThreads = 128, kValues = 32;
  static constexpr int kRowLanes = 4;
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Words = F16Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::dequantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_bulk_blocks_on_host(const void* args) {
  kv_dequantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize_bulk_blocks.q8_0.d128.planar.bf16.sm_90a
// ======== the plan ========
namespace kv {

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 8;
  static constexpr u32 kCodeXor = 0x80;
  using Fields = CodeFields<CodeField<0, 8, 0, 0>>;
  static constexpr int kOffset = 128, kLeast = 1, kMost = 255;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 32, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 128, kThreads = 128, kValues = 32;
  static constexpr int kRowLanes = 4;
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Words = Bf16Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::dequantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_bulk_blocks_on_host(const void* args) {
  kv_dequantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize_bulk_blocks.q8_0.d128.planar.f32.sm_90a
// ======== the plan ========
namespace kv {

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 8;
  static constexpr u32 kCodeXor = 0x80;
  using Fields = CodeFields<CodeField<0, 8, 0, 0>>;
  static constexpr int kOffset = 128, kLeast = 1, kMost = 255;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 128, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 32, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 128, kThreads = 128, kValues = 32;
  static constexpr int kRowLanes = 4;
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Words = F32Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::dequantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_bulk_blocks_on_host(const void* args) {
  kv_dequantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

