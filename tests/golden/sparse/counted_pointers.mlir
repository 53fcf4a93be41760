builtin.module {
  tt.func public @counted_pointers(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_a: i32, %stride_b: i32, %stride_d: i32) attributes {noinline = false} {
    %total = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %cst = arith.constant dense<0.000000e+00> : tensor<64x64xf16>
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<128x64xf16>
    %cst_2 = arith.constant dense<64> : tensor<128x64xi32>
    %c0_i32 = arith.constant 0 : i32
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %m = tt.get_program_id x : i32
    %m_1 = arith.muli %m, %c128_i32 : i32
    %m_2 = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %m_3 = tt.splat %m_1 : i32 -> tensor<128xi32>
    %m_4 = arith.addi %m_3, %m_2 : tensor<128xi32>
    %n = tt.get_program_id y : i32
    %n_1 = arith.muli %n, %c64_i32 : i32
    %n_2 = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %n_3 = tt.splat %n_1 : i32 -> tensor<64xi32>
    %n_4 = arith.addi %n_3, %n_2 : tensor<64xi32>
    %k = tt.make_range {tt.contiguity = dense<64> : tensor<1xi32>, end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %inside = tt.splat %N : i32 -> tensor<64xi32>
    %inside_1 = arith.cmpi slt, %n_4, %inside {tt.constancy = dense<1> : tensor<1xi32>} : tensor<64xi32>
    %lefts = tt.expand_dims %m_4 {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
    %lefts_1 = tt.splat %stride_a : i32 -> tensor<128x1xi32>
    %lefts_2 = arith.muli %lefts, %lefts_1 : tensor<128x1xi32>
    %lefts_3 = tt.splat %a : !tt.ptr<f16, #tt.sparse<"NV24">> -> tensor<128x1x!tt.ptr<f16, #tt.sparse<"NV24">>>
    %lefts_4 = tt.addptr %lefts_3, %lefts_2 : tensor<128x1x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<128x1xi32>
    %lefts_5 = tt.expand_dims %k {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %lefts_6 = tt.broadcast %lefts_4 : tensor<128x1x!tt.ptr<f16, #tt.sparse<"NV24">>> -> tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>
    %lefts_7 = tt.broadcast %lefts_5 : tensor<1x64xi32> -> tensor<128x64xi32>
    %lefts_8 = tt.addptr %lefts_6, %lefts_7 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<128x64xi32>
    %rights = tt.expand_dims %k {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %rights_1 = tt.splat %stride_b : i32 -> tensor<64x1xi32>
    %rights_2 = arith.muli %rights, %rights_1 : tensor<64x1xi32>
    %rights_3 = tt.splat %b : !tt.ptr<f16> -> tensor<64x1x!tt.ptr<f16>>
    %rights_4 = tt.addptr %rights_3, %rights_2 : tensor<64x1x!tt.ptr<f16>>, tensor<64x1xi32>
    %rights_5 = tt.expand_dims %n_4 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %rights_6 = tt.broadcast %rights_4 : tensor<64x1x!tt.ptr<f16>> -> tensor<64x64x!tt.ptr<f16>>
    %rights_7 = tt.broadcast %rights_5 : tensor<1x64xi32> -> tensor<64x64xi32>
    %rights_8 = tt.addptr %rights_6, %rights_7 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %0 = arith.constant 64 : i32
    %1, %2, %left = scf.for %range = %c0_i32 to %K step %0 iter_args(%lefts_9 = %lefts_8, %rights_9 = %rights_8, %total_1 = %total) -> (tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<64x64x!tt.ptr<f16>>, tensor<128x64xf32>) : i32 {
      %left_1 = arith.subi %K, %range : i32
      %left_tile = tt.splat %M : i32 -> tensor<128x1xi32>
      %left_tile_1 = arith.cmpi slt, %lefts, %left_tile : tensor<128x1xi32>
      %left_tile_2 = tt.splat %left_1 : i32 -> tensor<1x64xi32>
      %left_tile_3 = arith.cmpi slt, %lefts_5, %left_tile_2 : tensor<1x64xi32>
      %left_tile_4 = tt.broadcast %left_tile_1 : tensor<128x1xi1> -> tensor<128x64xi1>
      %left_tile_5 = tt.broadcast %left_tile_3 : tensor<1x64xi1> -> tensor<128x64xi1>
      %left_tile_6 = arith.andi %left_tile_4, %left_tile_5 : tensor<128x64xi1>
      %left_tile_7 = tt.load %lefts_9, %left_tile_6, %cst_1 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>
      %right_tile = tt.splat %left_1 : i32 -> tensor<64x1xi32>
      %right_tile_1 = arith.cmpi slt, %rights, %right_tile : tensor<64x1xi32>
      %right_tile_2 = tt.expand_dims %inside_1 {axis = 0 : i32} : tensor<64xi1> -> tensor<1x64xi1>
      %right_tile_3 = tt.broadcast %right_tile_1 : tensor<64x1xi1> -> tensor<64x64xi1>
      %right_tile_4 = tt.broadcast %right_tile_2 : tensor<1x64xi1> -> tensor<64x64xi1>
      %right_tile_5 = arith.andi %right_tile_3, %right_tile_4 : tensor<64x64xi1>
      %right_tile_6 = tt.load %rights_9, %right_tile_5, %cst : tensor<64x64x!tt.ptr<f16>>
      %total_2 = tt.dot %left_tile_7, %right_tile_6, %total_1, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      %lefts_10 = tt.addptr %lefts_9, %cst_2 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<128x64xi32>
      %rights_10 = arith.muli %stride_b, %c64_i32 : i32
      %rights_11 = tt.splat %rights_10 : i32 -> tensor<64x64xi32>
      %rights_12 = tt.addptr %rights_9, %rights_11 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
      scf.yield %lefts_10, %rights_12, %total_2 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<64x64x!tt.ptr<f16>>, tensor<128x64xf32>
    }
    %3 = tt.splat %M : i32 -> tensor<128x1xi32>
    %4 = arith.cmpi slt, %lefts, %3 : tensor<128x1xi32>
    %5 = tt.expand_dims %inside_1 {axis = 0 : i32} : tensor<64xi1> -> tensor<1x64xi1>
    %6 = tt.broadcast %4 : tensor<128x1xi1> -> tensor<128x64xi1>
    %7 = tt.broadcast %5 : tensor<1x64xi1> -> tensor<128x64xi1>
    %8 = arith.andi %6, %7 : tensor<128x64xi1>
    %9 = tt.splat %stride_d : i32 -> tensor<128x1xi32>
    %10 = arith.muli %lefts, %9 : tensor<128x1xi32>
    %11 = tt.splat %d : !tt.ptr<f16> -> tensor<128x1x!tt.ptr<f16>>
    %12 = tt.addptr %11, %10 : tensor<128x1x!tt.ptr<f16>>, tensor<128x1xi32>
    %13 = tt.broadcast %12 : tensor<128x1x!tt.ptr<f16>> -> tensor<128x64x!tt.ptr<f16>>
    %14 = tt.broadcast %rights_5 : tensor<1x64xi32> -> tensor<128x64xi32>
    %15 = tt.addptr %13, %14 : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>
    %16 = arith.truncf %left : tensor<128x64xf32> to tensor<128x64xf16>
    tt.store %15, %16, %8 : tensor<128x64x!tt.ptr<f16>>
    tt.return
  }
}
