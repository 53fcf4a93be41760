builtin.module {
  tt.func public @unmasked_pointers(%a: !tt.ptr<f16, #tt.sparse<"NV24">>, %b: !tt.ptr<f16>, %d: !tt.ptr<f16>, %K: i32, %stride_a: i32, %stride_b: i32, %stride_d: i32) attributes {noinline = false} {
    %c0_i32 = arith.constant 0 : i32
    %cst = arith.constant dense<16> : tensor<128x16xi32>
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c16_i32 = arith.constant 16 : i32
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
    %k = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %lefts = tt.expand_dims %m_4 {axis = 1 : i32} : tensor<128xi32> -> tensor<128x1xi32>
    %lefts_1 = tt.splat %stride_a : i32 -> tensor<128x1xi32>
    %lefts_2 = arith.muli %lefts, %lefts_1 : tensor<128x1xi32>
    %lefts_3 = tt.splat %a : !tt.ptr<f16, #tt.sparse<"NV24">> -> tensor<128x1x!tt.ptr<f16, #tt.sparse<"NV24">>>
    %lefts_4 = tt.addptr %lefts_3, %lefts_2 : tensor<128x1x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<128x1xi32>
    %lefts_5 = tt.expand_dims %k {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
    %lefts_6 = tt.broadcast %lefts_4 : tensor<128x1x!tt.ptr<f16, #tt.sparse<"NV24">>> -> tensor<128x16x!tt.ptr<f16, #tt.sparse<"NV24">>>
    %lefts_7 = tt.broadcast %lefts_5 : tensor<1x16xi32> -> tensor<128x16xi32>
    %lefts_8 = tt.addptr %lefts_6, %lefts_7 : tensor<128x16x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<128x16xi32>
    %rights = tt.expand_dims %k {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %rights_1 = tt.splat %stride_b : i32 -> tensor<16x1xi32>
    %rights_2 = arith.muli %rights, %rights_1 : tensor<16x1xi32>
    %rights_3 = tt.splat %b : !tt.ptr<f16> -> tensor<16x1x!tt.ptr<f16>>
    %rights_4 = tt.addptr %rights_3, %rights_2 : tensor<16x1x!tt.ptr<f16>>, tensor<16x1xi32>
    %rights_5 = tt.expand_dims %n_4 {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %rights_6 = tt.broadcast %rights_4 : tensor<16x1x!tt.ptr<f16>> -> tensor<16x64x!tt.ptr<f16>>
    %rights_7 = tt.broadcast %rights_5 : tensor<1x64xi32> -> tensor<16x64xi32>
    %rights_8 = tt.addptr %rights_6, %rights_7 : tensor<16x64x!tt.ptr<f16>>, tensor<16x64xi32>
    %total, %total_1, %total_2 = scf.for %_ = %c0_i32 to %K step %c16_i32 iter_args(%lefts_9 = %lefts_8, %rights_9 = %rights_8, %total_3 = %cst_1) -> (tensor<128x16x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<16x64x!tt.ptr<f16>>, tensor<128x64xf32>) : i32 {
      %total_4 = tt.load %lefts_9 : tensor<128x16x!tt.ptr<f16, #tt.sparse<"NV24">>>
      %total_5 = tt.load %rights_9 : tensor<16x64x!tt.ptr<f16>>
      %total_6 = tt.dot %total_4, %total_5, %cst_1, inputPrecision = tf32 : tensor<128x16xf16, #tt.sparse<"NV24">> * tensor<16x64xf16> -> tensor<128x64xf32>
      %total_7 = arith.addf %total_3, %total_6 : tensor<128x64xf32>
      %lefts_10 = tt.addptr %lefts_9, %cst : tensor<128x16x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<128x16xi32>
      %rights_10 = arith.muli %stride_b, %c16_i32 : i32
      %rights_11 = tt.splat %rights_10 : i32 -> tensor<16x64xi32>
      %rights_12 = tt.addptr %rights_9, %rights_11 : tensor<16x64x!tt.ptr<f16>>, tensor<16x64xi32>
      scf.yield %lefts_10, %rights_12, %total_7 : tensor<128x16x!tt.ptr<f16, #tt.sparse<"NV24">>>, tensor<16x64x!tt.ptr<f16>>, tensor<128x64xf32>
    }
    %0 = tt.splat %stride_d : i32 -> tensor<128x1xi32>
    %1 = arith.muli %lefts, %0 : tensor<128x1xi32>
    %2 = tt.splat %d : !tt.ptr<f16> -> tensor<128x1x!tt.ptr<f16>>
    %3 = tt.addptr %2, %1 : tensor<128x1x!tt.ptr<f16>>, tensor<128x1xi32>
    %4 = tt.broadcast %3 : tensor<128x1x!tt.ptr<f16>> -> tensor<128x64x!tt.ptr<f16>>
    %5 = tt.broadcast %rights_5 : tensor<1x64xi32> -> tensor<128x64xi32>
    %6 = tt.addptr %4, %5 : tensor<128x64x!tt.ptr<f16>>, tensor<128x64xi32>
    %7 = arith.truncf %total_2 : tensor<128x64xf32> to tensor<128x64xf16>
    tt.store %6, %7 : tensor<128x64x!tt.ptr<f16>>
    tt.return
  }
}
