builtin.module {
  tt.func public @last_step(%x: !tt.ptr<f8E4M3FN>, %w: !tt.ptr<f8E4M3FN, #tt.sparse<"NV24">>, %y: !tt.ptr<f8E4M3FN>, %M: i32, %N: i32, %K: i32, %stride_x: i32, %stride_w: i32, %stride_y: i32) attributes {noinline = false} {
    %0 = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c0_i32 = arith.constant 0 : i32
    %c1_i64 = arith.constant 1 : i64
    %c128_i32 = arith.constant 128 : i32
    %c64_i32 = arith.constant 64 : i32
    %1 = tt.get_program_id x : i32
    %2 = arith.muli %1, %c64_i32 : i32
    %3 = tt.get_program_id y : i32
    %4 = arith.muli %3, %c128_i32 : i32
    %x_tiles = arith.extsi %stride_x : i32 to i64
    %x_tiles_1 = tt.make_tensor_descriptor %x, [%M, %K], [%x_tiles, %c1_i64] : <f8E4M3FN>, <tensor<64x128xf8E4M3FN>>
    %w_tiles = arith.extsi %stride_w : i32 to i64
    %w_tiles_1 = tt.make_tensor_descriptor %w, [%N, %K], [%w_tiles, %c1_i64] : <f8E4M3FN, #tt.sparse<"NV24">>, <tensor<128x128xf8E4M3FN, #tt.sparse<"NV24">>>
    %y_tiles = arith.extsi %stride_y : i32 to i64
    %y_tiles_1 = tt.make_tensor_descriptor %y, [%M, %N], [%y_tiles, %c1_i64] : <f8E4M3FN>, <tensor<64x128xf8E4M3FN>>
    %total = scf.for %k = %c0_i32 to %K step %c128_i32 iter_args(%total_1 = %0) -> (tensor<128x64xf32>) : i32 {
      %total_2 = tt.descriptor_load %x_tiles_1[%2, %k] : !tt.tensordesc<tensor<64x128xf8E4M3FN>> -> tensor<64x128xf8E4M3FN>
      %total_3 = tt.descriptor_load %w_tiles_1[%4, %k] : !tt.tensordesc<tensor<128x128xf8E4M3FN, #tt.sparse<"NV24">>> -> tensor<128x128xf8E4M3FN, #tt.sparse<"NV24">>
      %5 = tt.trans %total_2 {order = array<i32: 1, 0>} : tensor<64x128xf8E4M3FN> -> tensor<128x64xf8E4M3FN>
      %6 = tt.dot %total_3, %5, %total_1, inputPrecision = tf32 {maxNumImpreciseAcc = 1073741824 : i32} : tensor<128x128xf8E4M3FN, #tt.sparse<"NV24">> * tensor<128x64xf8E4M3FN> -> tensor<128x64xf32>
      scf.yield %6 : tensor<128x64xf32>
    }
    %total_4 = tt.trans %total {order = array<i32: 1, 0>} : tensor<128x64xf32> -> tensor<64x128xf32>
    %7 = arith.truncf %total_4 : tensor<64x128xf32> to tensor<64x128xf16>
    %8 = tt.fp_to_fp %7, rounding = rtne : tensor<64x128xf16> -> tensor<64x128xf8E4M3FN>
    tt.descriptor_store %y_tiles_1[%2, %4], %8 : !tt.tensordesc<tensor<64x128xf8E4M3FN>>, tensor<64x128xf8E4M3FN>
    tt.return
  }
}
