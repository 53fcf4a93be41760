builtin.module {
  tt.func public @weight_pointers(%x: !tt.ptr<f16>, %w: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}, %y: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_x: i32, %stride_w: i32, %stride_y: i32) attributes {noinline = false} {
    %tiles_n = arith.constant 127 : i32
    %tiles_m = arith.constant 63 : i32
    %cst = arith.constant dense<0.000000e+00> : tensor<64x128xf16>
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<64x64xf16>
    %c0_i32 = arith.constant 0 : i32
    %cst_2 = arith.constant dense<64> : tensor<64x128xi32>
    %cst_3 = arith.constant dense<64> : tensor<64x64xi32>
    %cst_4 = arith.constant dense<0.000000e+00> : tensor<64x128xf32>
    %cst_5 = arith.constant dense<0> : tensor<1x128xi32>
    %c128_i32 = arith.constant 128 : i32
    %c64_i32 = arith.constant 64 : i32
    %c4_i32 = arith.constant 4 : i32
    %program = tt.get_program_id x : i32
    %tiles_m_1 = arith.addi %M, %tiles_m : i32
    %tiles_m_2 = arith.divsi %tiles_m_1, %c64_i32 : i32
    %tiles_n_1 = arith.addi %N, %tiles_n : i32
    %tiles_n_2 = arith.divsi %tiles_n_1, %c128_i32 : i32
    %of_group = arith.muli %tiles_n_2, %c4_i32 : i32
    %first_m = arith.divsi %program, %of_group : i32
    %first_m_1 = arith.muli %first_m, %c4_i32 : i32
    %rows = arith.subi %tiles_m_2, %first_m_1 : i32
    %rows_1 = arith.minsi %rows, %c4_i32 : i32
    %tile_m = arith.remsi %program, %of_group : i32
    %tile_m_1 = arith.remsi %tile_m, %rows_1 : i32
    %tile_m_2 = arith.addi %first_m_1, %tile_m_1 : i32
    %tile_n = arith.divsi %tile_m, %rows_1 : i32
    %m = arith.muli %tile_m_2, %c64_i32 : i32
    %m_1 = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %m_2 = tt.splat %m : i32 -> tensor<64xi32>
    %m_3 = arith.addi %m_2, %m_1 : tensor<64xi32>
    %n = arith.muli %tile_n, %c128_i32 : i32
    %n_1 = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %n_2 = tt.splat %n : i32 -> tensor<128xi32>
    %n_3 = arith.addi %n_2, %n_1 : tensor<128xi32>
    %m_read = tt.splat %M : i32 -> tensor<64xi32>
    %m_read_1 = arith.remsi %m_3, %m_read {tt.contiguity = dense<64> : tensor<1xi32>, tt.divisibility = dense<64> : tensor<1xi32>} : tensor<64xi32>
    %xs = tt.expand_dims %m_read_1 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %xs_1 = tt.splat %stride_x : i32 -> tensor<64x1xi32>
    %xs_2 = arith.muli %xs, %xs_1 : tensor<64x1xi32>
    %xs_3 = tt.splat %x : !tt.ptr<f16> -> tensor<64x1x!tt.ptr<f16>>
    %xs_4 = tt.addptr %xs_3, %xs_2 : tensor<64x1x!tt.ptr<f16>>, tensor<64x1xi32>
    %xs_5 = tt.expand_dims %m_1 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %xs_6 = tt.broadcast %xs_4 : tensor<64x1x!tt.ptr<f16>> -> tensor<64x64x!tt.ptr<f16>>
    %xs_7 = tt.broadcast %xs_5 : tensor<1x64xi32> -> tensor<64x64xi32>
    %xs_8 = tt.addptr %xs_6, %xs_7 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %ws = tt.expand_dims %n_3 {axis = 0 : i32} : tensor<128xi32> -> tensor<1x128xi32>
    %ws_1 = tt.splat %stride_w : i32 -> tensor<1x128xi32>
    %ws_2 = arith.muli %ws, %ws_1 : tensor<1x128xi32>
    %ws_3 = tt.splat %w : !tt.ptr<f16> -> tensor<1x128x!tt.ptr<f16>>
    %ws_4 = tt.addptr %ws_3, %ws_2 : tensor<1x128x!tt.ptr<f16>>, tensor<1x128xi32>
    %ws_5 = tt.expand_dims %m_1 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %ws_6 = tt.broadcast %ws_4 : tensor<1x128x!tt.ptr<f16>> -> tensor<64x128x!tt.ptr<f16>>
    %ws_7 = tt.broadcast %ws_5 : tensor<64x1xi32> -> tensor<64x128xi32>
    %ws_8 = tt.addptr %ws_6, %ws_7 : tensor<64x128x!tt.ptr<f16>>, tensor<64x128xi32>
    %total, %total_1, %total_2 = scf.for %first = %c0_i32 to %K step %c64_i32 iter_args(%xs_9 = %xs_8, %ws_9 = %ws_8, %total_3 = %cst_4) -> (tensor<64x64x!tt.ptr<f16>>, tensor<64x128x!tt.ptr<f16>>, tensor<64x128xf32>) : i32 {
      %left = tt.splat %first : i32 -> tensor<1x64xi32>
      %left_1 = arith.addi %xs_5, %left : tensor<1x64xi32>
      %left_2 = tt.splat %K : i32 -> tensor<1x64xi32>
      %left_3 = arith.cmpi slt, %left_1, %left_2 : tensor<1x64xi32>
      %left_4 = tt.broadcast %left_3 : tensor<1x64xi1> -> tensor<64x64xi1>
      %left_5 = tt.load %xs_9, %left_4, %cst_1 : tensor<64x64x!tt.ptr<f16>>
      %right = tt.splat %N : i32 -> tensor<1x128xi32>
      %right_1 = arith.cmpi slt, %ws, %right : tensor<1x128xi32>
      %right_2 = tt.splat %first : i32 -> tensor<64x1xi32>
      %right_3 = arith.addi %ws_5, %right_2 : tensor<64x1xi32>
      %right_4 = tt.splat %K : i32 -> tensor<64x1xi32>
      %right_5 = arith.cmpi slt, %right_3, %right_4 : tensor<64x1xi32>
      %right_6 = arith.cmpi sge, %ws, %cst_5 : tensor<1x128xi32>
      %right_7 = tt.broadcast %right_5 : tensor<64x1xi1> -> tensor<64x128xi1>
      %right_8 = tt.broadcast %right_6 : tensor<1x128xi1> -> tensor<64x128xi1>
      %right_9 = arith.andi %right_7, %right_8 : tensor<64x128xi1>
      %right_10 = tt.broadcast %right_1 : tensor<1x128xi1> -> tensor<64x128xi1>
      %right_11 = arith.andi %right_10, %right_9 : tensor<64x128xi1>
      %right_12 = tt.load %ws_9, %right_11, %cst : tensor<64x128x!tt.ptr<f16>>
      %total_4 = tt.dot %left_5, %right_12, %cst_4, inputPrecision = tf32 : tensor<64x64xf16> * tensor<64x128xf16> -> tensor<64x128xf32>
      %total_5 = arith.addf %total_3, %total_4 : tensor<64x128xf32>
      %xs_10 = tt.addptr %xs_9, %cst_3 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
      %ws_10 = tt.addptr %ws_9, %cst_2 : tensor<64x128x!tt.ptr<f16>>, tensor<64x128xi32>
      scf.yield %xs_10, %ws_10, %total_5 : tensor<64x64x!tt.ptr<f16>>, tensor<64x128x!tt.ptr<f16>>, tensor<64x128xf32>
    }
    %0 = tt.expand_dims %m_3 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %1 = tt.splat %M : i32 -> tensor<64x1xi32>
    %2 = arith.cmpi slt, %0, %1 : tensor<64x1xi32>
    %3 = tt.splat %N : i32 -> tensor<1x128xi32>
    %4 = arith.cmpi slt, %ws, %3 : tensor<1x128xi32>
    %5 = tt.broadcast %2 : tensor<64x1xi1> -> tensor<64x128xi1>
    %6 = tt.broadcast %4 : tensor<1x128xi1> -> tensor<64x128xi1>
    %7 = arith.andi %5, %6 : tensor<64x128xi1>
    %8 = tt.splat %stride_y : i32 -> tensor<64x1xi32>
    %9 = arith.muli %0, %8 : tensor<64x1xi32>
    %10 = tt.splat %y : !tt.ptr<f16> -> tensor<64x1x!tt.ptr<f16>>
    %11 = tt.addptr %10, %9 : tensor<64x1x!tt.ptr<f16>>, tensor<64x1xi32>
    %12 = tt.broadcast %11 : tensor<64x1x!tt.ptr<f16>> -> tensor<64x128x!tt.ptr<f16>>
    %13 = tt.broadcast %ws : tensor<1x128xi32> -> tensor<64x128xi32>
    %14 = tt.addptr %12, %13 : tensor<64x128x!tt.ptr<f16>>, tensor<64x128xi32>
    %15 = arith.truncf %total_2 : tensor<64x128xf32> to tensor<64x128xf16>
    tt.store %14, %15, %7 : tensor<64x128x!tt.ptr<f16>>
    tt.return
  }
}
