builtin.module {
  tt.func public @split_shares(%d: !tt.ptr<bf16>, %a: !tt.ptr<bf16, #tt.sparse<"NV24">>, %b: !tt.ptr<bf16>, %M: i32, %N: i32, %K: i32, %stride_a: i32, %stride_b: i32, %stride_d: i32) attributes {noinline = false, louver.split = [[2 : i64, "3", "", 1 : i64]]} {
    %total = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c1_i64 = arith.constant 1 : i64
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %0 = tt.get_program_id x : i32
    %1 = arith.muli %0, %c128_i32 : i32
    %2 = tt.get_program_id y : i32
    %3 = arith.muli %2, %c64_i32 : i32
    %a_tiles = arith.extsi %stride_a : i32 to i64
    %a_tiles_1 = tt.make_tensor_descriptor %a, [%M, %K], [%a_tiles, %c1_i64] : <bf16, #tt.sparse<"NV24">>, <tensor<128x64xbf16, #tt.sparse<"NV24">>>
    %b_tiles = arith.extsi %stride_b : i32 to i64
    %b_tiles_1 = tt.make_tensor_descriptor %b, [%N, %K], [%b_tiles, %c1_i64] : <bf16>, <tensor<64x64xbf16>>
    %d_tiles = arith.extsi %stride_d : i32 to i64
    %d_tiles_1 = tt.make_tensor_descriptor %d, [%M, %N], [%d_tiles, %c1_i64] : <bf16>, <tensor<128x64xbf16>>
    %4 = arith.constant 0 : i32
    %5 = arith.constant 64 : i32
    %total_1 = scf.for %step = %4 to %K step %5 iter_args(%total_2 = %total) -> (tensor<128x64xf32>) : i32 {
      %total_3 = tt.descriptor_load %a_tiles_1[%1, %step] : !tt.tensordesc<tensor<128x64xbf16, #tt.sparse<"NV24">>> -> tensor<128x64xbf16, #tt.sparse<"NV24">>
      %total_4 = tt.descriptor_load %b_tiles_1[%3, %step] : !tt.tensordesc<tensor<64x64xbf16>> -> tensor<64x64xbf16>
      %total_5 = tt.trans %total_4 {order = array<i32: 1, 0>} : tensor<64x64xbf16> -> tensor<64x64xbf16>
      %total_6 = tt.dot %total_3, %total_5, %total_2, inputPrecision = tf32 : tensor<128x64xbf16, #tt.sparse<"NV24">> * tensor<64x64xbf16> -> tensor<128x64xf32>
      scf.yield %total_6 : tensor<128x64xf32>
    }
    %6 = arith.truncf %total_1 : tensor<128x64xf32> to tensor<128x64xbf16>
    tt.descriptor_reduce add, %d_tiles_1[%1, %3], %6 : !tt.tensordesc<tensor<128x64xbf16>>, tensor<128x64xbf16>
    tt.return
  }
}
