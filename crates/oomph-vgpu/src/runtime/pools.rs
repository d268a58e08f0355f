//! Stream-ordered allocation.

use std::ffi::{c_int, c_void};

use crate::boundary::{In, Out, Untyped};
use crate::cuda::memory::{self as shared, AllocationProperties};
use crate::cuda::{Opaque, functions, hand_out};
use crate::status::RuntimeStatus;
use crate::stream::StreamHandle;
use crate::{memory, pool};

functions! { RuntimeStatus:
    cudaMallocAsync(to: Out<'_, Opaque>, size: usize, _stream: StreamHandle)
        = hand_out(to, pool::allocate(std::ptr::null_mut(), size));
    cudaMallocFromPoolAsync(to: Out<'_, Opaque>, size: usize, pool: Opaque, _stream: StreamHandle)
        = hand_out(to, pool::allocate(pool, size));
    cudaFreeAsync(pointer: *mut c_void, _stream: StreamHandle) = memory::free(pointer);
    cudaDeviceGetDefaultMemPool(to: Out<'_, Opaque>, ordinal: c_int) = shared::default_pool(to, ordinal);
    cudaDeviceGetMemPool(to: Out<'_, Opaque>, ordinal: c_int) = shared::default_pool(to, ordinal);
    cudaDeviceSetMemPool(_ordinal: c_int, _pool: Opaque) = ();
    cudaMemPoolCreate(to: Out<'_, Opaque>, properties: In<'_, AllocationProperties>)
        = shared::create_pool(to, properties);
    cudaMemPoolDestroy(pool: Opaque) = pool::destroy(pool);
    cudaMemPoolTrimTo(pool: Opaque, keep: usize) = pool::trim(pool, keep);
    cudaMemPoolGetAttribute(pool: Opaque, attribute: c_int, value: Untyped<'_>)
        = shared::pool_attribute(pool, attribute, value);
    cudaMemPoolSetAttribute(pool: Opaque, attribute: c_int, value: Untyped<'_>)
        = pool::set_attribute(pool, attribute, shared::given_pool_attribute(attribute, value)?);
    cudaMemPoolSetAccess(_pool: Opaque, _map: *const c_void, _count: usize) = ();
    /// 3 is "read and write".
    cudaMemPoolGetAccess(flags: Out<'_, c_int>, _pool: Opaque, _location: *mut c_void) = flags.set(3);
}
