"""Arrays of every library are taken where they lie: PyTorch, JAX, CuPy, NumPy, and kvjit's own by others."""
import numpy as np
import pytest

import kvjit
from kvjit import arrays


def views(x, stream=0):
    found = arrays.view(x, stream)
    return found.shape, found.strides, found.dtype, found.device


def test_numpy():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert views(x) == ((2, 3, 4), (12, 4, 1), "f32", "cpu") and arrays.view(x).data == x.ctypes.data
    assert views(x[:, ::2].swapaxes(0, 1)) == ((2, 2, 4), (8, 12, 1), "f32", "cpu")
    assert arrays.view(x[1:]).data == x.ctypes.data + 48
    frozen = x.view()
    frozen.flags.writeable = False  # NumPy gives no DLPack of these
    assert views(frozen) == views(x)


def test_torch():
    torch = pytest.importorskip("torch")
    x = torch.zeros(2, 3, 4, dtype=torch.bfloat16)
    assert views(x.transpose(0, 1)) == ((3, 2, 4), (4, 12, 1), "bf16", "cpu")
    for wrong in (torch.zeros(2, dtype=torch.float64), torch.zeros(2, 2).to_sparse(),
                  torch.zeros(2, dtype=torch.complex64).conj()):
        with pytest.raises(kvjit.ArrayError):
            arrays.view(wrong)
    with pytest.raises(kvjit.ArrayError, match="on meta"):
        arrays.check(torch.zeros(2, device="meta"), "x", device="cpu")


def test_jax():
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.ones((2, 3, 4), jnp.bfloat16)
    if x.device.platform != "cpu":
        pytest.skip("this JAX is on a GPU")
    shape, strides, dtype, device = views(x)
    assert (shape, dtype, device) == ((2, 3, 4), "bf16", "cpu") and strides == (12, 4, 1)


@pytest.mark.gpu
def test_cupy(gpu_reason):
    cupy = pytest.importorskip("cupy")
    if gpu_reason:
        pytest.skip(gpu_reason)
    x = cupy.zeros((2, 3, 4), cupy.float16)[:, ::2]
    assert views(x) == ((2, 2, 4), (12, 8, 1), "f16", "cuda:0")

    class Interface:  # without DLPack
        __cuda_array_interface__ = x.__cuda_array_interface__

    assert views(Interface()) == views(x)


def test_our_arrays_are_taken_by_others(device):
    context = kvjit.Context(device)
    x = kvjit.Array(context, [2, 3], "f32").fill(np.arange(6, dtype=np.float32).tobytes())
    assert x.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    if context.device == "cpu":
        shared = np.asarray(x)
        assert shared.ctypes.data == x.data
        shared[1, 2] = 7
        assert x.numpy()[1, 2] == 7
        assert not hasattr(x, "__cuda_array_interface__")
    else:
        torch = pytest.importorskip("torch")
        assert torch.as_tensor(x, device="cuda").data_ptr() == x.data
        assert not hasattr(x, "__array_interface__")
    halves = kvjit.Array(context, [2], "bf16").fill(b"\x80\x3f\x00\xc0")
    assert halves.numpy().tolist() == [1, -2]
    with pytest.raises(kvjit.ArrayError, match="3 bytes for an array of 4"):
        halves.fill(b"123")
    with pytest.raises(kvjit.ArrayError, match="no type"):
        kvjit.Array(context, [2], "f64")
    with pytest.raises(kvjit.ArrayError, match="negative"):
        kvjit.Array(context, [-2], "f16")
    with pytest.raises(kvjit.UnavailableError, match="bytes"):
        kvjit.Array(context, [1 << 50], "u8")
