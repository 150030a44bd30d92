// Rotation: a linear map of groups of channels, which is applied before quantization. Files of specs/rotations state
// rotation families (RotationSpec); specs/docs/formats.md ("Keys of a rotation") has their keys. make_rotation computes
// the numbers for one group size (Rotation).
//
//   wht     forward  y = S2 . (1/sqrt n) . H . S1 . x      inverse  x = S1 . (1/sqrt n) . H . S2 . y
//           H is the Walsh-Hadamard matrix in Sylvester (natural) order. S1 (pre) and S2 (post) are diagonal, +-1.
//   dense   forward  y = R . x                             inverse  x = R^T . y
//   blocks  The same with a block-diagonal R: neighbouring channels mix in twos, threes or fours. Channels that fill no
//           whole block stay as they are.
//
// Queries, keys and values use the forward map. The attention output uses the inverse of V's rotation.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

enum class RotationKind { none, wht, dense, blocks };

// How the signs of a transform are made (base/random.hpp). listed: the file has them.
enum class SignGenerator { none, pcg64, mt19937, golden, listed };

struct SignSource {
  SignGenerator generator = SignGenerator::none;
  std::uint64_t seed = 0;
  int draws = 0;                       // pcg64: length of each array as drawn; smaller sizes take a prefix
  std::vector<std::int8_t> pre, post;  // listed (as numbers or masks): +1 or -1; post may be empty
  int channels = 0;                    // listed, above 0: pre has signs of so many channels of a head
  std::vector<int> sizes;              // the group sizes that it serves
};

// The numbers of a matrix, row-major. They are computed when they are first asked for, and all copies share them. The
// Householder matrix of 256 channels takes 9 ms and 512 KiB; reading only the name of a format costs neither. Several
// threads may read copies.
class Matrix {
 public:
  Matrix() = default;
  Matrix(std::vector<double> numbers);  // NOLINT(google-explicit-constructor): a list of numbers is a matrix
  explicit Matrix(std::function<std::vector<double>()> make);
  const std::vector<double>& numbers() const;
  double operator[](std::size_t i) const { return numbers()[i]; }
  bool is_made() const;  // the numbers are there
  bool operator==(const Matrix& other) const { return shared_ == other.shared_ || numbers() == other.numbers(); }

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // null: no numbers
};

// How a dense matrix is made. listed: the file has the numbers.
enum class MatrixGenerator { householder, gaussian, listed };

struct MatrixSource {
  MatrixGenerator generator = MatrixGenerator::listed;
  std::uint64_t seed = 0;
  std::map<int, Matrix> by_size;  // the matrix of each group size
};

// The map of one block.
enum class BlockMap {
  givens,      // a rotation of two channels by an angle: y0 = c x0 - s x1
  quaternion,  // four channels: q v, the left Hamilton product with a unit quaternion (w first)
  rotor        // three channels: q v q* with a unit quaternion, the sandwich of a rotor of Cl(3,0)
};

struct BlockSource {
  BlockMap map = BlockMap::givens;
  bool is_listed = false;  // the file has the parameters; else they are drawn as torch does
  std::uint64_t seed = 0;
  std::vector<double> angles;       // listed: radians, one a block
  std::vector<double> quaternions;  // listed: w, x, y, z of each block
};

// A rotation family as its TOML file states it.
struct RotationSpec {
  std::string name, title, source;
  RotationKind kind = RotationKind::none;
  std::vector<int> sizes;         // group sizes that the file allows
  std::vector<SignSource> signs;  // wht
  MatrixSource matrix;            // dense
  BlockSource blocks;             // blocks
};

// A rotation of one group size, with its numbers.
struct Rotation {
  std::string name = "none";
  RotationKind kind = RotationKind::none;
  int size = 1;  // channels of a group
  // wht: `size` entries of +1 or -1 each. Where groups of a head have different signs, `pre` has those of all groups,
  // one group after the other; then a head has at most pre.size() channels.
  std::vector<std::int8_t> pre, post;
  int width = 0;  // dense: size; blocks: channels of a block
  // dense and blocks, row-major [size][width]: y_i = sum_k matrix[i * width + k] * x[i / width * width + k], over the
  // channels inside the group.
  Matrix matrix;
  bool is_orthogonal = true;  // false: a Gaussian matrix, whose "inverse" is only its transpose
  bool is_identity() const { return kind == RotationKind::none; }
  bool has_head_signs() const { return int(pre.size()) > size; }
  bool operator==(const Rotation&) const = default;
};

Result<RotationSpec> parse_rotation(std::string_view toml_text, const std::string& file);

// Fails with unsupported if the file does not allow `size`; the error lists the possible sizes.
Result<Rotation> make_rotation(const RotationSpec& spec, int size);

// Rotate n values in place, in double, in consecutive groups of rotation.size; n must be a multiple of it. If groups of
// a head have different signs, the values are those of one head.
void rotate_forward(const Rotation& rotation, double* x, int n);
void rotate_inverse(const Rotation& rotation, double* x, int n);

// An orthogonal n x n matrix, row-major. It is the Q of a Householder QR of the column-major matrix of
// splitmix_normals(seed, n * n), with signs that make it uniform (Haar). Float32 implementations of the same recipe
// differ by up to 2e-6.
std::vector<double> householder_matrix(std::uint64_t seed, int n);

// The matrix of splitmix_normals(seed, n * n) itself, drawn by columns and given row-major: independent N(0,1), not
// orthogonal.
std::vector<double> gaussian_matrix(std::uint64_t seed, int n);

// The matrix of blocks, row-major [size][width of the map], from angles (givens) or quaternions (w, x, y, z). The rows
// of channels that fill no whole block are rows of the identity.
std::vector<double> block_matrix(BlockMap map, const std::vector<double>& parameters, int size);
int block_width(BlockMap map);

}  // namespace kvjit
