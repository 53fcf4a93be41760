builtin.module {
  tt.func public @gated_pointers(%gate: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}, %up: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}, %x: !tt.ptr<f16>, %y: !tt.ptr<bf16>, %M: i32, %N: i32, %K: i32, %stride_gate: i32, %stride_up: i32, %stride_x: i32, %stride_y: i32) attributes {noinline = false} {
    %cst = arith.constant dense<0.000000e+00> : tensor<64x64xf16>
    %c0_i32 = arith.constant 0 : i32
    %cst_1 = arith.constant dense<64> : tensor<64x64xi32>
    %cst_2 = arith.constant dense<0.000000e+00> : tensor<64x64xf32>
    %c64_i32 = arith.constant 64 : i32
    %m = tt.get_program_id x : i32
    %m_1 = arith.muli %m, %c64_i32 : i32
    %m_2 = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %m_3 = tt.splat %m_1 : i32 -> tensor<64xi32>
    %m_4 = arith.addi %m_3, %m_2 : tensor<64xi32>
    %n = tt.get_program_id y : i32
    %n_1 = arith.muli %n, %c64_i32 : i32
    %n_2 = tt.splat %n_1 : i32 -> tensor<64xi32>
    %n_3 = arith.addi %n_2, %m_2 : tensor<64xi32>
    %gates = tt.expand_dims %m_4 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %gates_1 = tt.splat %stride_gate : i32 -> tensor<64x1xi32>
    %gates_2 = arith.muli %gates, %gates_1 : tensor<64x1xi32>
    %gates_3 = tt.splat %gate : !tt.ptr<f16> -> tensor<64x1x!tt.ptr<f16>>
    %gates_4 = tt.addptr %gates_3, %gates_2 : tensor<64x1x!tt.ptr<f16>>, tensor<64x1xi32>
    %gates_5 = tt.expand_dims %m_2 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %gates_6 = tt.broadcast %gates_4 : tensor<64x1x!tt.ptr<f16>> -> tensor<64x64x!tt.ptr<f16>>
    %gates_7 = tt.broadcast %gates_5 : tensor<1x64xi32> -> tensor<64x64xi32>
    %gates_8 = tt.addptr %gates_6, %gates_7 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %ups = tt.splat %stride_up : i32 -> tensor<64x1xi32>
    %ups_1 = arith.muli %gates, %ups : tensor<64x1xi32>
    %ups_2 = tt.splat %up : !tt.ptr<f16> -> tensor<64x1x!tt.ptr<f16>>
    %ups_3 = tt.addptr %ups_2, %ups_1 : tensor<64x1x!tt.ptr<f16>>, tensor<64x1xi32>
    %ups_4 = tt.broadcast %ups_3 : tensor<64x1x!tt.ptr<f16>> -> tensor<64x64x!tt.ptr<f16>>
    %ups_5 = tt.addptr %ups_4, %gates_7 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %xs = tt.expand_dims %m_2 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %xs_1 = tt.splat %x : !tt.ptr<f16> -> tensor<64x1x!tt.ptr<f16>>
    %xs_2 = tt.addptr %xs_1, %xs : tensor<64x1x!tt.ptr<f16>>, tensor<64x1xi32>
    %xs_3 = tt.expand_dims %n_3 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %xs_4 = tt.splat %stride_x : i32 -> tensor<1x64xi32>
    %xs_5 = arith.muli %xs_3, %xs_4 : tensor<1x64xi32>
    %xs_6 = tt.broadcast %xs_2 : tensor<64x1x!tt.ptr<f16>> -> tensor<64x64x!tt.ptr<f16>>
    %xs_7 = tt.broadcast %xs_5 : tensor<1x64xi32> -> tensor<64x64xi32>
    %xs_8 = tt.addptr %xs_6, %xs_7 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %two, %two_1, %two_2, %two_3, %two_4 = scf.for %first = %c0_i32 to %K step %c64_i32 iter_args(%gates_9 = %gates_8, %ups_6 = %ups_5, %xs_9 = %xs_8, %one = %cst_2, %two_5 = %cst_2) -> (tensor<64x64x!tt.ptr<f16>>, tensor<64x64x!tt.ptr<f16>>, tensor<64x64x!tt.ptr<f16>>, tensor<64x64xf32>, tensor<64x64xf32>) : i32 {
      %inside = tt.splat %first : i32 -> tensor<64xi32>
      %inside_1 = arith.addi %m_2, %inside : tensor<64xi32>
      %inside_2 = tt.splat %K : i32 -> tensor<64xi32>
      %inside_3 = arith.cmpi slt, %inside_1, %inside_2 : tensor<64xi32>
      %right = tt.expand_dims %inside_3 {axis = 1 : i32} : tensor<64xi1> -> tensor<64x1xi1>
      %right_1 = tt.splat %N : i32 -> tensor<1x64xi32>
      %right_2 = arith.cmpi slt, %xs_3, %right_1 : tensor<1x64xi32>
      %right_3 = tt.broadcast %right : tensor<64x1xi1> -> tensor<64x64xi1>
      %right_4 = tt.broadcast %right_2 : tensor<1x64xi1> -> tensor<64x64xi1>
      %right_5 = arith.andi %right_3, %right_4 : tensor<64x64xi1>
      %right_6 = tt.load %xs_9, %right_5, %cst : tensor<64x64x!tt.ptr<f16>>
      %one_1 = tt.expand_dims %inside_3 {axis = 0 : i32} : tensor<64xi1> -> tensor<1x64xi1>
      %one_2 = tt.splat %M : i32 -> tensor<64x1xi32>
      %one_3 = arith.cmpi slt, %gates, %one_2 : tensor<64x1xi32>
      %one_4 = tt.broadcast %one_1 : tensor<1x64xi1> -> tensor<64x64xi1>
      %one_5 = tt.broadcast %one_3 : tensor<64x1xi1> -> tensor<64x64xi1>
      %one_6 = arith.andi %one_4, %one_5 : tensor<64x64xi1>
      %one_7 = tt.load %gates_9, %one_6, %cst : tensor<64x64x!tt.ptr<f16>>
      %one_8 = tt.dot %one_7, %right_6, %cst_2, inputPrecision = tf32 : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>
      %one_9 = arith.addf %one, %one_8 : tensor<64x64xf32>
      %two_6 = tt.load %ups_6, %one_6, %cst : tensor<64x64x!tt.ptr<f16>>
      %two_7 = tt.dot %two_6, %right_6, %cst_2, inputPrecision = tf32 : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>
      %two_8 = arith.addf %two_5, %two_7 : tensor<64x64xf32>
      %gates_10 = tt.addptr %gates_9, %cst_1 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
      %ups_7 = tt.addptr %ups_6, %cst_1 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
      %xs_10 = tt.addptr %xs_9, %cst_1 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
      scf.yield %gates_10, %ups_7, %xs_10, %one_9, %two_8 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64x!tt.ptr<f16>>, tensor<64x64x!tt.ptr<f16>>, tensor<64x64xf32>, tensor<64x64xf32>
    }
    %result = arith.maxnumf %two_3, %cst_2 : tensor<64x64xf32>
    %result_1 = arith.mulf %result, %two_4 : tensor<64x64xf32>
    %result_2 = arith.addf %result_1, %two_3 : tensor<64x64xf32>
    %0 = tt.splat %M : i32 -> tensor<64x1xi32>
    %1 = arith.cmpi slt, %gates, %0 : tensor<64x1xi32>
    %2 = tt.splat %N : i32 -> tensor<1x64xi32>
    %3 = arith.cmpi slt, %xs_3, %2 : tensor<1x64xi32>
    %4 = tt.broadcast %1 : tensor<64x1xi1> -> tensor<64x64xi1>
    %5 = tt.broadcast %3 : tensor<1x64xi1> -> tensor<64x64xi1>
    %6 = arith.andi %4, %5 : tensor<64x64xi1>
    %7 = tt.splat %stride_y : i32 -> tensor<64x1xi32>
    %8 = arith.muli %gates, %7 : tensor<64x1xi32>
    %9 = tt.splat %y : !tt.ptr<bf16> -> tensor<64x1x!tt.ptr<bf16>>
    %10 = tt.addptr %9, %8 : tensor<64x1x!tt.ptr<bf16>>, tensor<64x1xi32>
    %11 = tt.broadcast %10 : tensor<64x1x!tt.ptr<bf16>> -> tensor<64x64x!tt.ptr<bf16>>
    %12 = tt.broadcast %xs_3 : tensor<1x64xi32> -> tensor<64x64xi32>
    %13 = tt.addptr %11, %12 : tensor<64x64x!tt.ptr<bf16>>, tensor<64x64xi32>
    %14 = arith.truncf %result_2 : tensor<64x64xf32> to tensor<64x64xbf16>
    tt.store %13, %14, %6 : tensor<64x64x!tt.ptr<bf16>>
    tt.return
  }
}
