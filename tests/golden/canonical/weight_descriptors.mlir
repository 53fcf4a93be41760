builtin.module {
  tt.func public @weight_descriptors(%y: !tt.ptr<f16>, %x: !tt.ptr<f16>, %w: !tt.ptr<f16, #tt.sparse<"NV24">>, %bias: !tt.ptr<f32>, %M: i32, %N: i32, %K: i32, %stride_x: i32, %stride_w: i32, %stride_y: i32) attributes {noinline = false} {
    %bias_tensor = tt.make_tensor_descriptor %bias, [%N], [1] : <f32>, <tensor<128xf32>>
    %c0_i32 = arith.constant 0 : i32
    %cst = arith.constant dense<0.000000e+00> : tensor<64x128xf32>
    %0 = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c1_i64 = arith.constant 1 : i64
    %c128_i32 = arith.constant 128 : i32
    %c64_i32 = arith.constant 64 : i32
    %row = tt.get_program_id x : i32
    %row_1 = arith.muli %row, %c64_i32 : i32
    %column = tt.get_program_id y : i32
    %column_1 = arith.muli %column, %c128_i32 : i32
    %x_tiles = arith.extsi %stride_x : i32 to i64
    %x_tiles_1 = tt.make_tensor_descriptor %x, [%M, %K], [%x_tiles, %c1_i64] : <f16>, <tensor<64x64xf16>>
    %w_tiles = arith.extsi %stride_w : i32 to i64
    %w_tiles_1 = tt.make_tensor_descriptor %w, [%N, %K], [%w_tiles, %c1_i64] : <f16, #tt.sparse<"NV24">>, <tensor<128x64xf16, #tt.sparse<"NV24">>>
    %y_tiles = arith.extsi %stride_y : i32 to i64
    %y_tiles_1 = tt.make_tensor_descriptor %y, [%M, %N], [%y_tiles, %c1_i64] : <f16>, <tensor<64x128xf16>>
    %total = scf.for %k = %c0_i32 to %K step %c64_i32 iter_args(%total_1 = %0) -> (tensor<128x64xf32>) : i32 {
      %total_2 = tt.descriptor_load %x_tiles_1[%row_1, %k] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %total_3 = tt.descriptor_load %w_tiles_1[%column_1, %k] : !tt.tensordesc<tensor<128x64xf16, #tt.sparse<"NV24">>> -> tensor<128x64xf16, #tt.sparse<"NV24">>
      %1 = tt.trans %total_2 {order = array<i32: 1, 0>} : tensor<64x64xf16> -> tensor<64x64xf16>
      %2 = tt.dot %total_3, %1, %total_1, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %2 : tensor<128x64xf32>
    }
    %total_4 = tt.trans %total {order = array<i32: 1, 0>} : tensor<128x64xf32> -> tensor<64x128xf32>
    %total_5 = tt.descriptor_load %bias_tensor[%column_1] : !tt.tensordesc<tensor<128xf32>> -> tensor<128xf32>
    %total_6 = tt.expand_dims %total_5 {axis = 0 : i32} : tensor<128xf32> -> tensor<1x128xf32>
    %total_7 = tt.broadcast %total_6 : tensor<1x128xf32> -> tensor<64x128xf32>
    %total_8 = arith.addf %total_4, %total_7 : tensor<64x128xf32>
    %3 = arith.maxnumf %total_8, %cst : tensor<64x128xf32>
    %4 = arith.truncf %3 : tensor<64x128xf32> to tensor<64x128xf16>
    tt.descriptor_store %y_tiles_1[%row_1, %column_1], %4 : !tt.tensordesc<tensor<64x128xf16>>, tensor<64x128xf16>
    tt.return
  }
}
