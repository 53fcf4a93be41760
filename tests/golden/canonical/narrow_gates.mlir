builtin.module {
  tt.func public @gated_layer(%y: !tt.ptr<f16>, %x: !tt.ptr<f16>, %gate_up: !tt.ptr<f16, #tt.sparse<"NV24">> {louver.gated = ["gate", "up"]}, %M: i32, %N: i32, %K: i32, %stride_x: i32, %stride_w: i32, %stride_y: i32) attributes {noinline = false, louver.equal = [["8*(N/8)", "N"]]} {
    %cst = arith.constant dense<1.000000e+00> : tensor<64x64xf32>
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<64x64xf32>
    %c32_i32 = arith.constant 32 : i32
    %c0_i32 = arith.constant 0 : i32
    %c1_i64 = arith.constant 1 : i64
    %c64_i32 = arith.constant 64 : i32
    %row = tt.get_program_id x : i32
    %row_1 = arith.muli %row, %c64_i32 : i32
    %column = tt.get_program_id y : i32
    %0 = arith.constant 128 : i32
    %1 = arith.muli %column, %0 : i32
    %column_1 = arith.muli %column, %c64_i32 : i32
    %x_tiles = arith.extsi %stride_x : i32 to i64
    %x_tiles_1 = tt.make_tensor_descriptor %x, [%M, %K], [%x_tiles, %c1_i64] : <f16>, <tensor<64x32xf16>>
    %gates = arith.extsi %stride_w : i32 to i64
    %2 = arith.constant 2 : i32
    %3 = arith.muli %N, %2 : i32
    %gate_up_tensor = tt.make_tensor_descriptor %gate_up, [%3, %K], [%gates, %c1_i64] : <f16, #tt.sparse<"NV24">>, <tensor<128x32xf16, #tt.sparse<"NV24">>>
    %y_tiles = arith.extsi %stride_y : i32 to i64
    %y_tiles_1 = tt.make_tensor_descriptor %y, [%M, %N], [%y_tiles, %c1_i64] : <f16>, <tensor<64x64xf16>>
    %4 = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %one = scf.for %k = %c0_i32 to %K step %c32_i32 iter_args(%one_1 = %4) -> (tensor<128x64xf32>) : i32 {
      %tokens = tt.descriptor_load %x_tiles_1[%row_1, %k] : !tt.tensordesc<tensor<64x32xf16>> -> tensor<64x32xf16>
      %5 = tt.trans %tokens {order = array<i32: 1, 0>} : tensor<64x32xf16> -> tensor<32x64xf16>
      %6 = tt.descriptor_load %gate_up_tensor[%1, %k] : !tt.tensordesc<tensor<128x32xf16, #tt.sparse<"NV24">>> -> tensor<128x32xf16, #tt.sparse<"NV24">>
      %7 = tt.dot %6, %5, %one_1, inputPrecision = tf32 : tensor<128x32xf16, #tt.sparse<"NV24">> * tensor<32x64xf16> -> tensor<128x64xf32>
      scf.yield %7 : tensor<128x64xf32>
    }
    %8 = tt.reshape %one : tensor<128x64xf32> -> tensor<8x2x8x64xf32>
    %9 = tt.trans %8 {order = array<i32: 0, 2, 3, 1>} : tensor<8x2x8x64xf32> -> tensor<8x8x64x2xf32>
    %10, %11 = tt.split %9 : tensor<8x8x64x2xf32> -> tensor<8x8x64xf32>
    %two = tt.reshape %10 : tensor<8x8x64xf32> -> tensor<64x64xf32>
    %two_1 = tt.reshape %11 : tensor<8x8x64xf32> -> tensor<64x64xf32>
    %two_2 = tt.trans %two_1 {order = array<i32: 1, 0>} : tensor<64x64xf32> -> tensor<64x64xf32>
    %two_3 = tt.trans %two {order = array<i32: 1, 0>} : tensor<64x64xf32> -> tensor<64x64xf32>
    %12 = arith.subf %cst_1, %two_3 : tensor<64x64xf32>
    %13 = math.exp %12 : tensor<64x64xf32>
    %14 = arith.addf %13, %cst : tensor<64x64xf32>
    %15 = arith.divf %cst, %14 : tensor<64x64xf32>
    %16 = arith.mulf %two_3, %15 : tensor<64x64xf32>
    %17 = arith.mulf %16, %two_2 : tensor<64x64xf32>
    %18 = arith.truncf %17 : tensor<64x64xf32> to tensor<64x64xf16>
    tt.descriptor_store %y_tiles_1[%row_1, %column_1], %18 : !tt.tensordesc<tensor<64x64xf16>>, tensor<64x64xf16>
    tt.return
  }
}
