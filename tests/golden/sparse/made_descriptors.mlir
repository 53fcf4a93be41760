builtin.module {
  tt.func public @made_descriptors(%d: !tt.ptr<f16>, %a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i32, %stride_d: i64) attributes {noinline = false} {
    %c63_i32 = arith.constant 63 : i32
    %total = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c1_i32 = arith.constant 1 : i32
    %c0_i32 = arith.constant 0 : i32
    %c1_i64 = arith.constant 1 : i64
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %row = tt.get_program_id x : i32
    %row_1 = arith.muli %row, %c128_i32 : i32
    %column = tt.get_program_id y : i32
    %column_1 = arith.muli %column, %c64_i32 : i32
    %a_tiles = tt.make_tensor_descriptor %a, [%M, %K], [%stride_a, %c1_i64] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %b_tiles = arith.extsi %stride_b : i32 to i64
    %b_tiles_1 = tt.make_tensor_descriptor %b, [%N, %K], [%b_tiles, %c1_i64] : <f16>, <tensor<64x64xf16>>
    %d_tiles = tt.make_tensor_descriptor %d, [%M, %N], [%stride_d, %c1_i64] : <f16>, <tensor<128x64xf16>>
    %0 = arith.addi %K, %c63_i32 : i32
    %1 = arith.divsi %0, %c64_i32 : i32
    %total_1 = scf.for %step = %c0_i32 to %1 step %c1_i32 iter_args(%total_2 = %total) -> (tensor<128x64xf32>) : i32 {
      %left = arith.muli %step, %c64_i32 : i32
      %left_1 = tt.descriptor_load %a_tiles[%row_1, %left] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %right = tt.descriptor_load %b_tiles_1[%column_1, %left] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %total_3 = tt.trans %right {order = array<i32: 1, 0>} : tensor<64x64xf16> -> tensor<64x64xf16>
      %total_4 = tt.dot %left_1, %total_3, %total_2, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %total_4 : tensor<128x64xf32>
    }
    %2 = arith.truncf %total_1 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.descriptor_store %d_tiles[%row_1, %column_1], %2 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>
    tt.return
  }
}
