builtin.module {
  tt.func public @eight_bit_blocks(%d: !tt.ptr<f8E4M3FN>, %a: !tt.ptr<f8E4M3FN, #tt.sparse<"NV24">>, %b: !tt.ptr<f8E4M3FN>, %M: i32, %N: i32, %K: i32, %stride_a: i64, %stride_b: i32, %stride_d: i64) attributes {noinline = false} {
    %total = arith.constant dense<1.000000e+00> : tensor<128x64xf32>
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c0_i32 = arith.constant 0 : i32
    %c1_i64 = arith.constant 1 : i64
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %tiles_n = arith.constant 63 : i32
    %tiles_n_1 = arith.addi %N, %tiles_n : i32
    %tiles_n_2 = arith.divsi %tiles_n_1, %c64_i32 : i32
    %row = tt.get_program_id x : i32
    %row_1 = arith.divsi %row, %tiles_n_2 : i32
    %row_2 = arith.muli %row_1, %c128_i32 : i32
    %column = arith.remsi %row, %tiles_n_2 : i32
    %column_1 = arith.muli %column, %c64_i32 : i32
    %a_tiles = tt.make_tensor_descriptor %a, [%M, %K], [%stride_a, %c1_i64] : <f8E4M3FN, #tt.sparse<"NV24">>, <tensor<128x128xf8E4M3FN, #tt.sparse<"NV24">>>
    %b_tiles = arith.extsi %stride_b : i32 to i64
    %b_tiles_1 = tt.make_tensor_descriptor %b, [%N, %K], [%b_tiles, %c1_i64] : <f8E4M3FN>, <tensor<64x128xf8E4M3FN>>
    %d_tiles = tt.make_tensor_descriptor %d, [%M, %N], [%stride_d, %c1_i64] : <f8E4M3FN>, <tensor<128x64xf8E4M3FN>>
    %total_1 = scf.for %k = %c0_i32 to %K step %c128_i32 iter_args(%total_2 = %cst) -> (tensor<128x64xf32>) : i32 {
      %total_3 = tt.descriptor_load %a_tiles[%row_2, %k] : !tt.tensordesc<tensor<128x128xf8E4M3FN, #tt.sparse<"NV24">>> -> tensor<128x128xf8E4M3FN, #tt.sparse<"NV24">>
      %total_4 = tt.descriptor_load %b_tiles_1[%column_1, %k] : !tt.tensordesc<tensor<64x128xf8E4M3FN>> -> tensor<64x128xf8E4M3FN>
      %total_5 = tt.trans %total_4 {order = array<i32: 1, 0>} : tensor<64x128xf8E4M3FN> -> tensor<128x64xf8E4M3FN>
      %total_6 = tt.dot %total_3, %total_5, %total_2, inputPrecision = tf32 {maxNumImpreciseAcc = 1073741824 : i32} : tensor<128x128xf8E4M3FN, #tt.sparse<"NV24">> * tensor<128x64xf8E4M3FN> -> tensor<128x64xf32>
      scf.yield %total_6 : tensor<128x64xf32>
    }
    %total_7 = arith.subf %cst, %total_1 : tensor<128x64xf32>
    %total_8 = math.exp %total_7 : tensor<128x64xf32>
    %total_9 = arith.addf %total_8, %total : tensor<128x64xf32>
    %total_10 = arith.divf %total, %total_9 : tensor<128x64xf32>
    %total_11 = arith.mulf %total_1, %total_10 : tensor<128x64xf32>
    %0 = tt.fp_to_fp %total_11, rounding = rtne : tensor<128x64xf32> -> tensor<128x64xf8E4M3FN>
    tt.descriptor_store %d_tiles[%row_2, %column_1], %0 : !tt.tensordesc<tensor<128x64xf8E4M3FN>>, tensor<128x64xf8E4M3FN>
    tt.return
  }
}
