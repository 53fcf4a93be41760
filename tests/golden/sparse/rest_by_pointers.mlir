builtin.module {
  tt.func public @rest_by_pointers(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %M: i32, %N: i32, %K: i32, %stride_a: i32, %stride_b: i32, %stride_d: i32) attributes {noinline = false} {
    %total = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %cst = arith.constant dense<0.000000e+00> : tensor<64x64xf16>
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<128x64xf16>
    %c1_i32 = arith.constant 1 : i32
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
    %lefts = tt.splat %M : i32 -> tensor<128xi32>
    %lefts_1 = arith.remsi %m_4, %lefts : tensor<128xi32>
    %lefts_2 = tt.expand_dims %lefts_1 {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
    %lefts_3 = tt.splat %stride_a : i32 -> tensor<128x1xi32>
    %lefts_4 = arith.muli %lefts_2, %lefts_3 : tensor<128x1xi32>
    %lefts_5 = tt.splat %a : !tt.ptr<f16, #tt.sparse<"NV24">> -> tensor<128x1x!tt.ptr<f16, #tt.sparse<"NV24">>>
    %lefts_6 = tt.addptr %lefts_5, %lefts_4 : tensor<128x1x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<128x1xi32>
    %lefts_7 = tt.expand_dims %n_2 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %lefts_8 = tt.broadcast %lefts_6 : tensor<128x1x!tt.ptr<f16, #tt.sparse<"NV24">>> -> tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>
    %lefts_9 = tt.broadcast %lefts_7 : tensor<1x64xi32> -> tensor<128x64xi32>
    %lefts_10 = tt.addptr %lefts_8, %lefts_9 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<128x64xi32>
    %rights = tt.expand_dims %n_2 {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %rights_1 = tt.splat %stride_b : i32 -> tensor<64x1xi32>
    %rights_2 = arith.muli %rights, %rights_1 : tensor<64x1xi32>
    %rights_3 = tt.splat %b : !tt.ptr<f16> -> tensor<64x1x!tt.ptr<f16>>
    %rights_4 = tt.addptr %rights_3, %rights_2 : tensor<64x1x!tt.ptr<f16>>, tensor<64x1xi32>
    %rights_5 = tt.splat %N : i32 -> tensor<64xi32>
    %rights_6 = arith.remsi %n_4, %rights_5 : tensor<64xi32>
    %rights_7 = tt.expand_dims %rights_6 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %rights_8 = tt.broadcast %rights_4 : tensor<64x1x!tt.ptr<f16>> -> tensor<64x64x!tt.ptr<f16>>
    %rights_9 = tt.broadcast %rights_7 : tensor<1x64xi32> -> tensor<64x64xi32>
    %rights_10 = tt.addptr %rights_8, %rights_9 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %0 = arith.divsi %K, %c64_i32 : i32
    %total_1, %total_2, %total_3 = scf.for %_ = %c0_i32 to %0 step %c1_i32 iter_args(%lefts_11 = %lefts_10, %rights_11 = %rights_10, %total_4 = %total) -> (tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<64x64x!tt.ptr<f16>>, tensor<128x64xf32>) : i32 {
      %total_5 = tt.load %lefts_11 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>
      %total_6 = tt.load %rights_11 : tensor<64x64x!tt.ptr<f16>>
      %total_7 = tt.dot %total_5, %total_6, %total_4, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      %lefts_12 = tt.addptr %lefts_11, %cst_2 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<128x64xi32>
      %rights_12 = arith.muli %stride_b, %c64_i32 : i32
      %rights_13 = tt.splat %rights_12 : i32 -> tensor<64x64xi32>
      %rights_14 = tt.addptr %rights_11, %rights_13 : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
      scf.yield %lefts_12, %rights_14, %total_7 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<64x64x!tt.ptr<f16>>, tensor<128x64xf32>
    }
    %rest = arith.remsi %K, %c64_i32 : i32
    %1 = arith.cmpi sgt, %rest, %c0_i32 : i32
    %2 = scf.if %1 -> (tensor<128x64xf32>) {
      %left = tt.splat %rest : i32 -> tensor<1x64xi32>
      %left_1 = arith.cmpi slt, %lefts_7, %left : tensor<1x64xi32>
      %left_2 = tt.broadcast %left_1 : tensor<1x64xi1> -> tensor<128x64xi1>
      %left_3 = tt.load %total_1, %left_2, %cst_1 : tensor<128x64x!tt.ptr<f16, #tt.sparse<"NV24">>>
      %right = tt.splat %rest : i32 -> tensor<64x1xi32>
      %right_1 = arith.cmpi slt, %rights, %right : tensor<64x1xi32>
      %right_2 = tt.broadcast %right_1 : tensor<64x1xi1> -> tensor<64x64xi1>
      %right_3 = tt.load %total_2, %right_2, %cst : tensor<64x64x!tt.ptr<f16>>
      %total_8 = tt.dot %left_3, %right_3, %total_3, inputPrecision = tf32 : tensor<128x64xf16, #tt.sparse<"NV24">> * tensor<64x64xf16> -> tensor<128x64xf32>
      scf.yield %total_8 : tensor<128x64xf32>
    } else {
      scf.yield %total_3 : tensor<128x64xf32>
    }
    %3 = tt.expand_dims %m_4 {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
    %4 = tt.splat %M : i32 -> tensor<128x1xi32>
    %5 = arith.cmpi slt, %3, %4 : tensor<128x1xi32>
    %6 = tt.expand_dims %n_4 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %7 = tt.splat %N : i32 -> tensor<1x64xi32>
    %8 = arith.cmpi slt, %6, %7 : tensor<1x64xi32>
    %9 = tt.broadcast %5 : tensor<128x1xi1> -> tensor<128x64xi1>
    %10 = tt.broadcast %8 : tensor<1x64xi1> -> tensor<128x64xi1>
    %11 = arith.andi %9, %10 : tensor<128x64xi1>
    %12 = tt.splat %stride_d : i32 -> tensor<128x1xi32>
    %13 = arith.muli %3, %12 : tensor<128x1xi32>
    %14 = tt.splat %d : !tt.ptr<f16> -> tensor<128x1x!tt.ptr<f16>>
    %15 = tt.addptr %14, %13 : tensor<128x1x!tt.ptr<f16>>, tensor<128x1xi32>
    %16 = tt.broadcast %15 : tensor<128x1x!tt.ptr<f16>> -> tensor<128x64x!tt.ptr<f16>>
    %17 = tt.broadcast %6 : tensor<1x64xi32> -> tensor<128x64xi32>
    %18 = tt.addptr %16, %17 : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>
    %19 = arith.truncf %2 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.store %18, %19, %11 : tensor<128x64x!tt.ptr<f16>>
    tt.return
  }
}
