builtin.module {
  tt.func public @rest_of_k(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i32, %stride_d: i64) attributes {noinline = false} {
    %c1_i32 = arith.constant 1 : i32
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c0_i32 = arith.constant 0 : i32
    %c32_i32 = arith.constant 32 : i32
    %c1_i64 = arith.constant 1 : i64
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %0 = tt.get_program_id x : i32
    %1 = arith.muli %0, %c128_i32 : i32
    %2 = tt.get_program_id y : i32
    %3 = arith.muli %2, %c64_i32 : i32
    %a_tiles = tt.make_tensor_descriptor %a, [%M, %K], [%stride_a, %c1_i64] : <f16, #tt.sparse<"NV24">>, <tensor<128x32xf16, #tt.sparse<"NV24">>>
    %b_tiles = arith.extsi %stride_b : i32 to i64
    %b_tiles_1 = tt.make_tensor_descriptor %b, [%N, %K], [%b_tiles, %c1_i64] : <f16>, <tensor<64x32xf16>>
    %d_tiles = tt.make_tensor_descriptor %d, [%M, %N], [%stride_d, %c1_i64] : <f16>, <tensor<128x64xf16>>
    %steps = arith.divsi %K, %c32_i32 : i32
    %total = scf.for %step = %c0_i32 to %steps step %c1_i32 iter_args(%total_1 = %cst) -> (tensor<128x64xf32>) : i32 {
      %total_2 = arith.muli %step, %c32_i32 : i32
      %total_3 = tt.descriptor_load %a_tiles[%1, %total_2] : !tt.tensordesc<tensor<128x32xf16, #tt.sparse<"NV24">>> -> tensor<128x32xf16, #tt.sparse<"NV24">>
      %total_4 = tt.descriptor_load %b_tiles_1[%3, %total_2] : !tt.tensordesc<tensor<64x32xf16>> -> tensor<64x32xf16>
      %total_5 = tt.trans %total_4 {order = array<i32: 1, 0>} : tensor<64x32xf16> -> tensor<32x64xf16>
      %total_6 = tt.dot %total_3, %total_5, %cst, inputPrecision = tf32 : tensor<128x32xf16, #tt.sparse<"NV24">> * tensor<32x64xf16> -> tensor<128x64xf32>
      %total_7 = arith.addf %total_1, %total_6 : tensor<128x64xf32>
      scf.yield %total_7 : tensor<128x64xf32>
    }
    %4 = arith.remsi %K, %c32_i32 : i32
    %5 = arith.cmpi sgt, %4, %c0_i32 : i32
    %6 = scf.if %5 -> (tensor<128x64xf32>) {
      %total_8 = arith.muli %steps, %c32_i32 : i32
      %total_9 = tt.descriptor_load %a_tiles[%1, %total_8] : !tt.tensordesc<tensor<128x32xf16, #tt.sparse<"NV24">>> -> tensor<128x32xf16, #tt.sparse<"NV24">>
      %total_10 = tt.descriptor_load %b_tiles_1[%3, %total_8] : !tt.tensordesc<tensor<64x32xf16>> -> tensor<64x32xf16>
      %total_11 = tt.trans %total_10 {order = array<i32: 1, 0>} : tensor<64x32xf16> -> tensor<32x64xf16>
      %total_12 = tt.dot %total_9, %total_11, %cst, inputPrecision = tf32 : tensor<128x32xf16, #tt.sparse<"NV24">> * tensor<32x64xf16> -> tensor<128x64xf32>
      %total_13 = arith.addf %total, %total_12 : tensor<128x64xf32>
      scf.yield %total_13 : tensor<128x64xf32>
    } else {
      scf.yield %total : tensor<128x64xf32>
    }
    %7 = arith.truncf %6 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.descriptor_store %d_tiles[%1, %3], %7 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    tt.return
  }
}
