builtin.module {
  tt.func public @gated_layer(%y: !tt.ptr<f16>, %x: !tt.ptr<f16>, %gate: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}, %up: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}, %M: i32, %N: i32, %K: i32, %stride_x: i32, %stride_w: i32, %stride_y: i32) attributes {noinline = false} {
    %cst = arith.constant dense<1.000000e+00> : tensor<64x64xf32>
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<64x64xf32>
    %c32_i32 = arith.constant 32 : i32
    %c0_i32 = arith.constant 0 : i32
    %c1_i64 = arith.constant 1 : i64
    %c64_i32 = arith.constant 64 : i32
    %row = tt.get_program_id x : i32
    %row_1 = arith.muli %row, %c64_i32 : i32
    %column = tt.get_program_id y : i32
    %column_1 = arith.muli %column, %c64_i32 : i32
    %x_tiles = arith.extsi %stride_x : i32 to i64
    %x_tiles_1 = tt.make_tensor_descriptor %x, [%M, %K], [%x_tiles, %c1_i64] : <f16>, <tensor<64x32xf16>>
    %gates = arith.extsi %stride_w : i32 to i64
    %gates_1 = tt.make_tensor_descriptor %gate, [%N, %K], [%gates, %c1_i64] : <f16>, <tensor<64x32xf16>>
    %ups = tt.make_tensor_descriptor %up, [%N, %K], [%gates, %c1_i64] : <f16>, <tensor<64x32xf16>>
    %y_tiles = arith.extsi %stride_y : i32 to i64
    %y_tiles_1 = tt.make_tensor_descriptor %y, [%M, %N], [%y_tiles, %c1_i64] : <f16>, <tensor<64x64xf16>>
    %two, %two_1 = scf.for %k = %c0_i32 to %K step %c32_i32 iter_args(%one = %cst_1, %two_2 = %cst_1) -> (tensor<64x64xf32>, tensor<64x64xf32>) : i32 {
      %tokens = tt.descriptor_load %x_tiles_1[%row_1, %k] : !tt.tensordesc<tensor<64x32xf16>> -> tensor<64x32xf16>
      %one_1 = tt.descriptor_load %gates_1[%column_1, %k] : !tt.tensordesc<tensor<64x32xf16>> -> tensor<64x32xf16>
      %one_2 = tt.trans %one_1 {order = array<i32: 1, 0>} : tensor<64x32xf16> -> tensor<32x64xf16>
      %one_3 = tt.dot %tokens, %one_2, %one, inputPrecision = tf32 : tensor<64x32xf16> * tensor<32x64xf16> -> tensor<64x64xf32>
      %two_3 = tt.descriptor_load %ups[%column_1, %k] : !tt.tensordesc<tensor<64x32xf16>> -> tensor<64x32xf16>
      %two_4 = tt.trans %two_3 {order = array<i32: 1, 0>} : tensor<64x32xf16> -> tensor<32x64xf16>
      %two_5 = tt.dot %tokens, %two_4, %two_2, inputPrecision = tf32 : tensor<64x32xf16> * tensor<32x64xf16> -> tensor<64x64xf32>
      scf.yield %one_3, %two_5 : tensor<64x64xf32>, tensor<64x64xf32>
    }
    %0 = arith.subf %cst_1, %two : tensor<64x64xf32>
    %1 = math.exp %0 : tensor<64x64xf32>
    %2 = arith.addf %1, %cst : tensor<64x64xf32>
    %3 = arith.divf %cst, %2 : tensor<64x64xf32>
    %4 = arith.mulf %two, %3 : tensor<64x64xf32>
    %5 = arith.mulf %4, %two_1 : tensor<64x64xf32>
    %6 = arith.truncf %5 : tensor<64x64xf32> to tensor<64x64xf16>
    tt.descriptor_store %y_tiles_1[%row_1, %column_1], %6 : !tt.tensordesc<tensor<64x64xf16>>, tensor<64x64xf16>
    tt.return
  }
}
