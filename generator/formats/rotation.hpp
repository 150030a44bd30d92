// Rotation: a linear map of groups of channels, applied before quantization, given by data in specs/rotations/*.toml.
//
//   wht     forward  y = S2 . (1/sqrt n) . H . S1 . x      inverse  x = S1 . (1/sqrt n) . H . S2 . y
//           H: Sylvester (natural order) Walsh-Hadamard; S1 = pre signs, S2 = post signs (diagonal +-1).
//   dense   forward  y = R . x                             inverse  x = R^T . y
//   blocks  the same with R block-diagonal: neighbouring channels mix in twos, threes or fours, the ones that fill no whole
//           block stay as they are.
//
// Query and key both use forward; the attention output uses the inverse of V's rotation.
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

// How a pair of sign arrays is made.
enum class SignGenerator { none, pcg64, mt19937, golden, listed };

struct SignSource {
  SignGenerator generator = SignGenerator::none;
  std::uint64_t seed = 0;
  int draws = 0;                       // pcg64: length of each array as drawn; a shorter size uses their prefix
  std::vector<std::int8_t> pre, post;  // listed (also as masks): +1 / -1; post may be empty
  std::vector<int> sizes;              // the group sizes that it serves
};

// The numbers of a matrix, row-major: made when they are first asked for and then shared by every copy. Householder of
// 256 channels takes 9 ms and 512 KiB, and whoever reads a format's name pays neither. Copies may be read by several
// threads.
class Matrix {
 public:
  Matrix() = default;
  Matrix(std::vector<double> numbers);  // NOLINT(google-explicit-constructor): a list of numbers is a matrix
  explicit Matrix(std::function<std::vector<double>()> make);
  const std::vector<double>& numbers() const;
  double operator[](std::size_t i) const { return numbers()[i]; }
  bool is_made() const;
  bool operator==(const Matrix& other) const { return shared_ == other.shared_ || numbers() == other.numbers(); }

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // null: no numbers
};

// How a dense matrix is made; listed: the file has the numbers.
enum class MatrixGenerator { householder, gaussian, listed };

struct MatrixSource {
  MatrixGenerator generator = MatrixGenerator::listed;
  std::uint64_t seed = 0;
  std::map<int, Matrix> by_size;
};

// What one block does, and how its parameters are drawn: an angle for each pair (y0 = c x0 - s x1), a unit quaternion
// for each four (left Hamilton product, w first) or for each three (q v q*, the sandwich of a rotor of Cl(3,0)).
enum class BlockMap { givens, quaternion, rotor };

struct BlockSource {
  BlockMap map = BlockMap::givens;
  bool is_listed = false;  // else drawn as torch does
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

// A rotation of one group size, numbers computed.
struct Rotation {
  std::string name = "none";
  RotationKind kind = RotationKind::none;
  int size = 1;                        // channels a group
  std::vector<std::int8_t> pre, post;  // wht: size entries of +1 / -1 each
  int width = 0;                       // dense: size; blocks: channels mixed together
  // Row-major [size][width]: y_i = sum_k matrix[i * width + k] * x[i / width * width + k], over channels inside the
  // group.
  Matrix matrix;
  bool is_orthogonal = true;  // false: a Gaussian matrix, whose "inverse" is only its transpose
  bool is_identity() const { return kind == RotationKind::none; }
  bool operator==(const Rotation&) const = default;
};

Result<RotationSpec> parse_rotation(std::string_view toml_text, const std::string& file);

// Fails with unsupported when the file does not allow `size` (message lists the sizes that are possible).
Result<Rotation> make_rotation(const RotationSpec& spec, int size);

// In place, in double, over consecutive groups of rotation.size; n must be a multiple of it.
void rotate_forward(const Rotation& rotation, double* x, int n);
void rotate_inverse(const Rotation& rotation, double* x, int n);

// Orthogonal, n x n, row-major: Householder QR of the column-major matrix of splitmix_normals(seed, n * n), signs fixed
// so that it is uniform (Haar). Float32 implementations of the same recipe differ by up to 2e-6.
std::vector<double> householder_matrix(std::uint64_t seed, int n);

// That column-major matrix itself, row-major: independent N(0,1), not orthogonal.
std::vector<double> gaussian_matrix(std::uint64_t seed, int n);

// Row-major [size][width of the map] from angles (givens) or quaternions (w, x, y, z); the rows of channels that fill
// no whole block are rows of the identity.
std::vector<double> block_matrix(BlockMap map, const std::vector<double>& parameters, int size);
int block_width(BlockMap map);

}  // namespace kvjit
