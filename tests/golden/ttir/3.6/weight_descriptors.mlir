builtin.module {
  tt.func public @weight_descriptors(%y: !tt.ptr<f16>, %x: !tt.ptr<f16>, %w: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}, %bias: !tt.ptr<f32>, %M: i32, %N: i32, %K: i32, %stride_x: i32, %stride_w: i32, %stride_y: i32) attributes {noinline = false} {
    %c0_i32 = arith.constant 0 : i32
    %cst = arith.constant dense<0.000000e+00> : tensor<64x128xf32>
    %total = arith.constant dense<0.000000e+00> : tensor<128xf32>
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
    %w_tiles_1 = tt.make_tensor_descriptor %w, [%N, %K], [%w_tiles, %c1_i64] : <f16>, <tensor<128x64xf16>>
    %y_tiles = arith.extsi %stride_y : i32 to i64
    %y_tiles_1 = tt.make_tensor_descriptor %y, [%M, %N], [%y_tiles, %c1_i64] : <f16>, <tensor<64x128xf16>>
    %total_1 = scf.for %k = %c0_i32 to %K step %c64_i32 iter_args(%total_2 = %cst) -> (tensor<64x128xf32>) : i32 {
      %total_3 = tt.descriptor_load %x_tiles_1[%row_1, %k] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>
      %total_4 = tt.descriptor_load %w_tiles_1[%column_1, %k] : !tt.tensordesc<tensor<128x64xf16>> -> tensor<128x64xf16>
      %total_5 = tt.trans %total_4 {order = array<i32: 1, 0>} : tensor<128x64xf16> -> tensor<64x128xf16>
      %total_6 = tt.dot %total_3, %total_5, %total_2, inputPrecision = tf32 : tensor<64x64xf16> * tensor<64x128xf16> -> tensor<64x128xf32>
      scf.yield %total_6 : tensor<64x128xf32>
    }
    %n = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %n_1 = tt.splat %column_1 : i32 -> tensor<128xi32>
    %n_2 = arith.addi %n_1, %n : tensor<128xi32>
    %total_7 = tt.splat %N : i32 -> tensor<128xi32>
    %total_8 = arith.cmpi slt, %n_2, %total_7 : tensor<128xi32>
    %total_9 = tt.splat %bias : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %total_10 = tt.addptr %total_9, %n_2 : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    %total_11 = tt.load %total_10, %total_8, %total : tensor<128x!tt.ptr<f32>>
    %total_12 = tt.expand_dims %total_11 {axis = 0 : i32} : tensor<128xf32> -> tensor<1x128xf32>
    %total_13 = tt.broadcast %total_12 : tensor<1x128xf32> -> tensor<64x128xf32>
    %total_14 = arith.addf %total_1, %total_13 : tensor<64x128xf32>
    %0 = arith.maxnumf %total_14, %cst : tensor<64x128xf32>
    %1 = arith.truncf %0 : tensor<64x128xf32> to tensor<64x128xf16>
    tt.descriptor_store %y_tiles_1[%row_1, %column_1], %1 : !tt.tensordesc<tensor<64x128xf16>>, tensor<64x128xf16>
    tt.return
  }
}
