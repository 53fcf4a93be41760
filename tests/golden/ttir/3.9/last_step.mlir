builtin.module {
  tt.func public @last_step(%x: !tt.ptr<f8E4M3FN>, %w: !tt.ptr<f8E4M3FN> {louver.sparse.NV24 = 1 : i32}, %y: !tt.ptr<f8E4M3FN>, %M: i32, %N: i32, %K: i32, %stride_x: i32, %stride_w: i32, %stride_y: i32) attributes {noinline = false} {
    %last = arith.constant 127 : i32
    %total = arith.constant dense<0.000000e+00> : tensor<64x128xf32>
    %c0_i32 = arith.constant 0 : i32
    %last_1 = arith.constant 1 : i32
    %c1_i64 = arith.constant 1 : i64
    %c128_i32 = arith.constant 128 : i32
    %c64_i32 = arith.constant 64 : i32
    %0 = tt.get_program_id x : i32
    %1 = arith.muli %0, %c64_i32 : i32
    %2 = tt.get_program_id y : i32
    %3 = arith.muli %2, %c128_i32 : i32
    %x_tiles = arith.extsi %stride_x : i32 to i64
    %x_tiles_1 = tt.make_tensor_descriptor %x, [%M, %K], [%x_tiles, %c1_i64] : <f8E4M3FN>, <tensor<64x128xf8E4M3FN>>
    %w_tiles = arith.extsi %stride_w : i32 to i64
    %w_tiles_1 = tt.make_tensor_descriptor %w, [%N, %K], [%w_tiles, %c1_i64] : <f8E4M3FN>, <tensor<128x128xf8E4M3FN>>
    %y_tiles = arith.extsi %stride_y : i32 to i64
    %y_tiles_1 = tt.make_tensor_descriptor %y, [%M, %N], [%y_tiles, %c1_i64] : <f8E4M3FN>, <tensor<64x128xf8E4M3FN>>
    %last_2 = arith.addi %K, %last : i32
    %last_3 = arith.divsi %last_2, %c128_i32 : i32
    %last_4 = arith.subi %last_3, %last_1 : i32
    %last_5 = arith.muli %last_4, %c128_i32 : i32
    %total_1 = scf.for %k = %c0_i32 to %last_5 step %c128_i32 iter_args(%total_2 = %total) -> (tensor<64x128xf32>) : i32 {
      %total_3 = tt.descriptor_load %x_tiles_1[%1, %k] : !tt.tensordesc<tensor<64x128xf8E4M3FN>> -> tensor<64x128xf8E4M3FN>
      %total_4 = tt.descriptor_load %w_tiles_1[%3, %k] : !tt.tensordesc<tensor<128x128xf8E4M3FN>> -> tensor<128x128xf8E4M3FN>
      %total_5 = tt.trans %total_4 {order = array<i32: 1, 0>} : tensor<128x128xf8E4M3FN> -> tensor<128x128xf8E4M3FN>
      %total_6 = tt.dot %total_3, %total_5, %total_2, inputPrecision = tf32 {maxNumImpreciseAcc = 1073741824 : i32} : tensor<64x128xf8E4M3FN> * tensor<128x128xf8E4M3FN> -> tensor<64x128xf32>
      scf.yield %total_6 : tensor<64x128xf32>
    }
    %total_7 = tt.descriptor_load %x_tiles_1[%1, %last_5] : !tt.tensordesc<tensor<64x128xf8E4M3FN>> -> tensor<64x128xf8E4M3FN>
    %total_8 = tt.descriptor_load %w_tiles_1[%3, %last_5] : !tt.tensordesc<tensor<128x128xf8E4M3FN>> -> tensor<128x128xf8E4M3FN>
    %total_9 = tt.trans %total_8 {order = array<i32: 1, 0>} : tensor<128x128xf8E4M3FN> -> tensor<128x128xf8E4M3FN>
    %total_10 = tt.dot %total_7, %total_9, %total_1, inputPrecision = tf32 {maxNumImpreciseAcc = 1073741824 : i32} : tensor<64x128xf8E4M3FN> * tensor<128x128xf8E4M3FN> -> tensor<64x128xf32>
    %4 = arith.truncf %total_10 : tensor<64x128xf32> to tensor<64x128xf16>
    %5 = tt.fp_to_fp %4, rounding = rtne : tensor<64x128xf16> -> tensor<64x128xf8E4M3FN>
    tt.descriptor_store %y_tiles_1[%1, %3], %5 : !tt.tensordesc<tensor<64x128xf8E4M3FN>>, tensor<64x128xf8E4M3FN>
    tt.return
  }
}
