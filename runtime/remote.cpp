#include "runtime/remote.hpp"
namespace kvjit {
Result<std::unique_ptr<Layer>> open_remote(const Options&) { return fail(Code::unsupported, "not yet"); }
}  // namespace kvjit
