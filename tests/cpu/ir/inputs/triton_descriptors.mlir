// A product through tensor descriptors with a bias and a transposed store, as Triton 3.6 prints it after inlining,
// canonicalization and CSE.
module {
  tt.func public @gemm(%arg0: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %arg1: !tt.ptr<f16>, %arg2: !tt.ptr<f16>, %arg3: !tt.ptr<f32>, %arg4: i32, %arg5: i32, %arg6: i32, %arg7: i64, %arg8: i64, %arg9: i64) attributes {noinline = false} {
    %cst = arith.constant dense<0.000000e+00> : tensor<128x256xf32>
    %c64_i32 = arith.constant 64 : i32
    %c0_i32 = arith.constant 0 : i32
    %c256_i32 = arith.constant 256 : i32
    %c128_i32 = arith.constant 128 : i32
    %c1_i64 = arith.constant 1 : i64
    %0 = tt.get_program_id x : i32
    %1 = tt.get_program_id y : i32
    %2 = tt.make_tensor_descriptor %arg0, [%arg4, %arg6], [%arg7, %c1_i64] : <f16>, <tensor<128x64xf16>>
    %3 = tt.make_tensor_descriptor %arg1, [%arg5, %arg6], [%arg8, %c1_i64] : <f16>, <tensor<256x64xf16>>
    %4 = tt.make_tensor_descriptor %arg2, [%arg5, %arg4], [%arg9, %c1_i64] : <f16>, <tensor<256x128xf16>>
    %5 = tt.make_tensor_descriptor %arg3, [%arg4], [%c1_i64] : <f32>, <tensor<128xf32>>
    %6 = scf.for %arg10 = %c0_i32 to %arg6 step %c64_i32 iter_args(%arg11 = %cst) -> (tensor<128x256xf32>)  : i32 {
      %15 = arith.muli %0, %c128_i32 : i32
      %16 = tt.descriptor_load %2[%15, %arg10] : !tt.tensordesc<tensor<128x64xf16>> -> tensor<128x64xf16>
      %17 = arith.muli %1, %c256_i32 : i32
      %18 = tt.descriptor_load %3[%17, %arg10] : !tt.tensordesc<tensor<256x64xf16>> -> tensor<256x64xf16>
      %19 = tt.trans %18 {order = array<i32: 1, 0>} : tensor<256x64xf16> -> tensor<64x256xf16>
      %20 = tt.dot %16, %19, %arg11, inputPrecision = tf32 : tensor<128x64xf16> * tensor<64x256xf16> -> tensor<128x256xf32>
      scf.yield %20 : tensor<128x256xf32>
    }
    %7 = arith.muli %0, %c128_i32 : i32
    %8 = tt.descriptor_load %5[%7] : !tt.tensordesc<tensor<128xf32>> -> tensor<128xf32>
    %9 = tt.expand_dims %8 {axis = 1 : i32} : tensor<128xf32> -> tensor<128x1xf32>
    %10 = tt.broadcast %9 : tensor<128x1xf32> -> tensor<128x256xf32>
    %11 = arith.addf %6, %10 : tensor<128x256xf32>
    %12 = arith.muli %1, %c256_i32 : i32
    %13 = arith.truncf %11 : tensor<128x256xf32> to tensor<128x256xf16>
    %14 = tt.trans %13 {order = array<i32: 1, 0>} : tensor<128x256xf16> -> tensor<256x128xf16>
    tt.descriptor_store %4[%12, %7], %14 : !tt.tensordesc<tensor<256x128xf16>>, tensor<256x128xf16>
    tt.return
  }
}
