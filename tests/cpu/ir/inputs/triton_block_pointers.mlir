// A product through block pointers, as Triton 3.6 prints it after inlining, canonicalization and CSE.
module {
  tt.func public @blk(%arg0: !tt.ptr<f16>, %arg1: !tt.ptr<f16>, %arg2: !tt.ptr<f16>, %arg3: i32) attributes {noinline = false} {
    %cst = arith.constant dense<0.000000e+00> : tensor<32x16xf32>
    %c64_i32 = arith.constant 64 : i32
    %c16_i64 = arith.constant 16 : i64
    %c0_i32 = arith.constant 0 : i32
    %c1_i64 = arith.constant 1 : i64
    %c32_i64 = arith.constant 32 : i64
    %0 = arith.extsi %arg3 : i32 to i64
    %1 = tt.make_tensor_ptr %arg0, [%c32_i64, %0], [%0, %c1_i64], [%c0_i32, %c0_i32] {order = array<i32: 1, 0>} : <tensor<32x64xf16>>
    %2 = tt.make_tensor_ptr %arg1, [%0, %c16_i64], [%c16_i64, %c1_i64], [%c0_i32, %c0_i32] {order = array<i32: 1, 0>} : <tensor<64x16xf16>>
    %3 = tt.make_tensor_ptr %arg2, [%c32_i64, %c16_i64], [%c16_i64, %c1_i64], [%c0_i32, %c0_i32] {order = array<i32: 1, 0>} : <tensor<32x16xf16>>
    %4:3 = scf.for %arg4 = %c0_i32 to %arg3 step %c64_i32 iter_args(%arg5 = %1, %arg6 = %2, %arg7 = %cst) -> (!tt.ptr<tensor<32x64xf16>>, !tt.ptr<tensor<64x16xf16>>, tensor<32x16xf32>)  : i32 {
      %6 = tt.load %arg5 {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<32x64xf16>>
      %7 = tt.load %arg6 : !tt.ptr<tensor<64x16xf16>>
      %8 = tt.dot %6, %7, %cst, inputPrecision = tf32 : tensor<32x64xf16> * tensor<64x16xf16> -> tensor<32x16xf32>
      %9 = arith.addf %arg7, %8 : tensor<32x16xf32>
      %10 = tt.advance %arg5, [%c0_i32, %c64_i32] : <tensor<32x64xf16>>
      %11 = tt.advance %arg6, [%c64_i32, %c0_i32] : <tensor<64x16xf16>>
      scf.yield %10, %11, %9 : !tt.ptr<tensor<32x64xf16>>, !tt.ptr<tensor<64x16xf16>>, tensor<32x16xf32>
    }
    %5 = arith.truncf %4#2 : tensor<32x16xf32> to tensor<32x16xf16>
    tt.store %3, %5 {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<32x16xf16>>
    tt.return
  }
}
