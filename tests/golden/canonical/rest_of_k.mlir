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
    %4 = arith.constant 31 : i32
    %5 = arith.addi %K, %4 : i32
    %6 = arith.constant 32 : i32
    %7 = arith.divsi %5, %6 : i32
    %8 = arith.constant 32 : i32
    %total = scf.for %step = %c0_i32 to %K step %8 iter_args(%total_1 = %cst) -> (tensor<128x64xf32>) : i32 {
      %total_2 = tt.descriptor_load %a_tiles[%1, %step] : !tt.tensordesc<tensor<128x32xf16, #tt.sparse<"NV24">>> -> tensor<128x32xf16, #tt.sparse<"NV24">>
      %total_3 = tt.descriptor_load %b_tiles_1[%3, %step] : !tt.tensordesc<tensor<64x32xf16>> -> tensor<64x32xf16>
      %total_4 = tt.trans %total_3 {order = array<i32: 1, 0>} : tensor<64x32xf16> -> tensor<32x64xf16>
      %total_5 = tt.dot %total_2, %total_4, %total_1, inputPrecision = tf32 : tensor<128x32xf16, #tt.sparse<"NV24">> * tensor<32x64xf16> -> tensor<128x64xf32>
      scf.yield %total_5 : tensor<128x64xf32>
    }
    %9 = arith.truncf %total : tensor<128x64xf32> to tensor<128x64xf16>
    tt.descriptor_store %d_tiles[%1, %3], %9 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    tt.return
  }
}
