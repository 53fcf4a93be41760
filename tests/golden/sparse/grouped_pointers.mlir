builtin.module {
  tt.func public @grouped_pointers(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_am: i32, %stride_bk: i32, %stride_dm: i32) attributes {noinline = false} {
    %total = arith.constant dense<1.000000e-02> : tensor<128x64xf32>
    %cst = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c63_i32 = arith.constant 63 : i32
    %tiles_m = arith.constant 127 : i32
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<64x64xf16>
    %cst_2 = arith.constant dense<0.000000e+00> : tensor<128x64xf16>
    %c1_i32 = arith.constant 1 : i32
    %cst_3 = arith.constant dense<64> : tensor<128x64xi32>
    %c64_i32 = arith.constant 64 : i32
    %c128_i32 = arith.constant 128 : i32
    %c0_i32 = arith.constant 0 : i32
    %c8_i32 = arith.constant 8 : i32
    %program = tt.get_program_id x : i32
    %tiles_m_1 = arith.addi %M, %tiles_m : i32
    %tiles_m_2 = arith.divsi %tiles_m_1, %c128_i32 : i32
    %tiles_n = arith.addi %N, %c63_i32 : i32
    %tiles_n_1 = arith.divsi %tiles_n, %c64_i32 : i32
    %of_group = arith.muli %tiles_n_1, %c8_i32 : i32
    %first_m = arith.divsi %program, %of_group : i32
    %first_m_1 = arith.muli %first_m, %c8_i32 : i32
    %rows = arith.subi %tiles_m_2, %first_m_1 : i32
    %rows_1 = arith.minsi %rows, %c8_i32 : i32
    %tile_m = arith.remsi %program, %of_group : i32
    %tile_m_1 = arith.remsi %tile_m, %rows_1 : i32
    %tile_m_2 = arith.addi %first_m_1, %tile_m_1 : i32
    %tile_n = arith.divsi %tile_m, %rows_1 : i32
    %0 = arith.cmpi sge, %tile_m_2, %c0_i32 : i32
    llvm.intr.assume %0 : i1
    %1 = arith.cmpi sgt, %stride_am, %c0_i32 : i32
    llvm.intr.assume %1 : i1
    %m_read = arith.muli %tile_m_2, %c128_i32 : i32
    %m_read_1 = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %m_read_2 = tt.splat %m_read : i32 -> tensor<128xi32>
    %m_read_3 = arith.addi %m_read_2, %m_read_1 : tensor<128xi32>
    %m_read_4 = tt.splat %M : i32 -> tensor<128xi32>
    %m_read_5 = arith.remsi %m_read_3, %m_read_4 : tensor<128xi32>
    %n_read = arith.muli %tile_n, %c64_i32 : i32
    %n_read_1 = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %n_read_2 = tt.splat %n_read : i32 -> tensor<64xi32>
    %n_read_3 = arith.addi %n_read_2, %n_read_1 : tensor<64xi32>
    %n_read_4 = tt.splat %N : i32 -> tensor<64xi32>
    %n_read_5 = arith.remsi %n_read_3, %n_read_4 : tensor<64xi32>
    %lefts = tt.expand_dims %m_read_5 {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
    %lefts_1 = tt.splat %stride_am : i32 -> tensor<128x1xi32>
    %lefts_2 = arith.muli %lefts, %lefts_1 : tensor<128x1xi32>
    %lefts_3 = tt.expand_dims %n_read_1 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %lefts_4 = tt.broadcast %lefts_2 : tensor<128x1xi32> -> tensor<128x64xi32>
    %lefts_5 = tt.broadcast %lefts_3 : tensor<1x64xi32> -> tensor<128x64xi32>
    %lefts_6 = arith.addi %lefts_4, %lefts_5 : tensor<128x64xi32>
    %lefts_7 = tt.splat %a : !tt.ptr<f16, #tt.sparse<"NV24">> -> tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>
    %lefts_8 = tt.addptr %lefts_7, %lefts_6 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<128x64xi32>
    %rights = tt.expand_dims %n_read_1 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %rights_1 = tt.splat %stride_bk : i32 -> tensor<64x1xi32>
    %rights_2 = arith.muli %rights, %rights_1 : tensor<64x1xi32>
    %rights_3 = tt.expand_dims %n_read_5 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %rights_4 = tt.broadcast %rights_2 : tensor<64x1xi32> -> tensor<64x64xi32>
    %rights_5 = tt.broadcast %rights_3 : tensor<1x64xi32> -> tensor<64x64xi32>
    %rights_6 = arith.addi %rights_4, %rights_5 : tensor<64x64xi32>
    %rights_7 = tt.splat %b : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
    %rights_8 = tt.addptr %rights_7, %rights_6 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %2 = arith.addi %K, %c63_i32 : i32
    %3 = arith.divsi %2, %c64_i32 : i32
    %total_1, %total_2, %total_3 = scf.for %step = %c0_i32 to %3 step %c1_i32 iter_args(%lefts_9 = %lefts_8, %rights_9 = %rights_8, %total_4 = %cst) -> (tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<64x64x!tt.ptr<f16>>, tensor<128x64xf32>) : i32 {
      %left = arith.muli %step, %c64_i32 : i32
      %left_1 = arith.subi %K, %left : i32
      %left_2 = tt.splat %left_1 : i32 -> tensor<1x64xi32>
      %left_3 = arith.cmpi slt, %lefts_3, %left_2 : tensor<1x64xi32>
      %left_4 = tt.broadcast %left_3 : tensor<1x64xi1> -> tensor<128x64xi1>
      %left_5 = tt.load %lefts_9, %left_4, %cst_2 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>
      %right = tt.splat %left_1 : i32 -> tensor<64x1xi32>
      %right_1 = arith.cmpi slt, %rights, %right : tensor<64x1xi32>
      %right_2 = tt.broadcast %right_1 : tensor<64x1xi1> -> tensor<64x64xi1>
      %right_3 = tt.load %rights_9, %right_2, %cst_1 : tensor<64x64x!tt.ptr<f16>>
      %total_5 = tt.dot %left_5, %right_3, %total_4, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      %lefts_10 = tt.addptr %lefts_9, %cst_3 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<128x64xi32>
      %rights_10 = arith.muli %stride_bk, %c64_i32 : i32
      %rights_11 = tt.splat %rights_10 : i32 -> tensor<64x64xi32>
      %rights_12 = tt.addptr %rights_9, %rights_11 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
      scf.yield %lefts_10, %rights_12, %total_5 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<64x64x!tt.ptr<f16>>, tensor<128x64xf32>
    }
    %total_6 = arith.cmpf oge, %total_3, %cst : tensor<128x64xf32>
    %total_7 = arith.mulf %total_3, %total : tensor<128x64xf32>
    %total_8 = arith.select %total_6, %total_3, %total_7 : tensor<128x64xi1>, tensor<128x64xf32>
    %result = arith.truncf %total_8 : tensor<128x64xf32> to tensor<128x64xf16>
    %outs = tt.expand_dims %m_read_3 {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
    %outs_1 = tt.splat %stride_dm : i32 -> tensor<128x1xi32>
    %outs_2 = arith.muli %outs_1, %outs : tensor<128x1xi32>
    %outs_3 = tt.splat %d : !tt.ptr<f16> -> tensor<128x1x!tt.ptr<f16>>
    %outs_4 = tt.addptr %outs_3, %outs_2 : tensor<128x1x!tt.ptr<f16>>, tensor<128x1xi32>
    %outs_5 = tt.expand_dims %n_read_3 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %outs_6 = tt.broadcast %outs_4 : tensor<128x1x!tt.ptr<f16>> -> tensor<128x64x!tt.ptr<f16>>
    %outs_7 = tt.broadcast %outs_5 : tensor<1x64xi32> -> tensor<128x64xi32>
    %outs_8 = tt.addptr %outs_6, %outs_7 : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>
    %4 = tt.splat %M : i32 -> tensor<128x1xi32>
    %5 = arith.cmpi slt, %outs, %4 : tensor<128x1xi32>
    %6 = tt.splat %N : i32 -> tensor<1x64xi32>
    %7 = arith.cmpi slt, %outs_5, %6 : tensor<1x64xi32>
    %8 = tt.broadcast %5 : tensor<128x1xi1> -> tensor<128x64xi1>
    %9 = tt.broadcast %7 : tensor<1x64xi1> -> tensor<128x64xi1>
    %10 = arith.andi %8, %9 : tensor<128x64xi1>
    tt.store %outs_8, %result, %10 : tensor<128x64x!tt.ptr<f16>>
    tt.return
  }
}
